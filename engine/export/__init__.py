"""Pruned models as folders that other tools can load.

`exporting`: the whole of it: written aside, loaded back and compared, described, then renamed
`forms`: what tensors and config a form has: masked and small
`even`: the form that fits the stock architecture, or why there is none
`means`: means of pruned parts, in output biases
`modeling_pruned`: the file that goes along with the form `small`, for transformers to run; nothing here imports it but
to compare
`folders`: the folder beside, and weights written in files of bounded size
`verifying`: the exported model's logits beside the masked model's
`card`: the model card, and what base and mask it is from
"""
