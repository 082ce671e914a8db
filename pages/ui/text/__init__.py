"""Text screen: one text, token by token, as the full and the pruned model read it.

`setting`: what the controls are set to, with the models known
`reading`: one setting of the screen, and the jobs that measure its losses
`tables`: the losses as tables and sentences
`view`: the text, drawn again while it is measured
`looks`: the heads whose attention is shown, and where they look
`continued`: how both models write on
`sections`: below the text: the in-context gain, the logit lens, the losses token by token
"""
