"""Continue screen: text that the full and the pruned model generate after a prompt.

`setting`: what the screen measures, its job and its command
`sections`: the prompt and how it is continued, and both models side by side
`said`: a component that sets a prompt and what was said after it
`charts`: the likeliest next tokens as bars
"""
