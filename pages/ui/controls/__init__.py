"""Controls that screens share: the study and its bar, the model, a text.

`study`: the study: what is measured on all screens, and with what pruned
`study_bar`: the bar of the study
`sidebar`: model, precision, task data folder, state of the result store
`selection`: the second model: one control and one query parameter for all screens
`controls`: task, ranking, levels and mask, bound to the address
`task_box`: the select box of tasks
`own_questions`: a user's own questions: the path of a file, an upload, or pasted rows
`many_tasks`: controls and work of the screens about many tasks
`first_views`: the tasks and shot counts that these screens open with
`drag_slider`: a slider that reports while it moves
`heads`: links from a head's name to its page
`coloring`: the switch that colors a map of heads and FFNs
`texts`: the text of a screen
"""
