"""Questions answered under a mask: how often rightly, and at what cost.

`evaluation`: answers, accuracy, intervals and flips, through the store
`scoring`: log-likelihoods of all choices; what all questions begin with is computed once
`passes`: a forward pass over rows of different lengths, without padding
`restarts`: passes that begin at the first layer that a mask changes
`published`: what others have measured, and whether it agrees
`costs`: what a mask saves in parameters, bytes and seconds
"""
