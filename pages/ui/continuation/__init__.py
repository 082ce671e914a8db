"""Continue screen: text that the full and the pruned model generate after a prompt.

`setting`: the settings, their job and their command
`sections`: the prompt and how it is continued, and both models side by side
`said`: a component that shows a prompt and its continuation
`charts`: the likeliest next tokens as bars
"""
