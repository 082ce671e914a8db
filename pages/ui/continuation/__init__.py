"""Continue screen: text that the full and the pruned model generate after a prompt.

`setting`: the settings, their job and their command
`sections`: the prompt and how it is continued, and both models side by side
`said`: a component that shows a prompt and its continuation
`vector`: what the model says with a task's function vector, by the layer that gets it
`patching`: what moves the answer, by layer and position, from another prompt
`unfit`: what two prompts need that cannot be patched, and pairs that work
`pair`: a component that drags a token of another prompt onto one of this, and its line over the layers
`charts`: the likeliest next tokens as bars
"""
