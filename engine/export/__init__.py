"""Pruned models as folders that other tools can load.

`exporting`: the whole export: written to a temporary folder, loaded back and compared, described, then renamed
`forms`: tensors and config of the forms masked and small
`even`: the form that fits the stock architecture, or the reason why a mask does not
`modeling_pruned`: the file included in the form `small`, for transformers to run; imported here only to compare
`folders`: the temporary folder, and weights written in files of bounded size
`card`: the model card, and the base model's license
"""
