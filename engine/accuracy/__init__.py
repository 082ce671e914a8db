"""Answers to questions under a mask: accuracy, cost and speed.

`evaluation`: answers, accuracy, intervals and flips, through the store
`scoring`: log-likelihoods of all choices; what all questions begin with is computed once
`passes`: a forward pass over rows of different lengths, without padding
`restarts`: passes that begin at the first layer that a mask changes
`published`: what others have measured, and whether it agrees
`speed`: tokens a second, and bytes of weights, keys and values, full against pruned
`costs`: what a mask saves in parameters, bytes and seconds
"""
