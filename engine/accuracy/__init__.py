"""Answers to questions under a mask: accuracy and speed.

`evaluation`: answers, accuracy, intervals and flips, through the store
`confidence`: how sure a model is of its answers, and whether that fits its accuracy
`scoring`: log-likelihoods of all choices; a prefix shared by all questions is computed once
`passes`: a forward pass over rows of different lengths, without padding
`restarts`: passes that start at the first layer that a mask changes, and the ablation oracle
`harness_logs`: answers that lm-evaluation-harness logged, and those measured here as it logs its own
`harness_rows`: the rows of such a log, whatever the harness's version
`published`: published values, and whether the measured ones agree
`speed`: tokens per second and memory of a pruned model
"""
