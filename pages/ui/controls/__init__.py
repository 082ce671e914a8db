"""Controls that screens share: the study and its bar, the model, a text.

`study`: the study: what is measured on all screens, and with what pruned
`study_bar`: the bar of the study
`model`: the model of the study, and the one that it is compared with
`offers`: a model that is not here: looked up and downloaded with the user's consent, or converted
`sidebar`: work that goes on, and what the app keeps on this computer
`controls`: choices bound to the address, and what folds
`task`: the task of the study, and a user's own questions
`many_tasks`: controls and work of the screens about many tasks
`first_views`: the tasks and shot counts that these screens open with
`drag_slider`: a slider that reports while it moves
`coloring`: the switch that colors a map of heads and FFNs
`texts`: the text of a screen
"""
