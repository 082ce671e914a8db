"""Controls that several screens share: model, task, order, levels, mask, text.

`sidebar`: which model in which precision, where task data lie, how the result store does
`selection`: what the sidebar's model is compared with: one control and one word of the address for all screens
`controls`: task, ranking, levels and mask, bound to the address
`task_box`: the box that a task is chosen in
`own_questions`: a user's own questions: the path of a file, or an upload
`pruning`: what is pruned in a text: two levels, a mask, a ranking
`many_tasks`: what the screens about many tasks share
`carried`: what is pruned, taken over from screen to screen
`drag_slider`: a slider that reports while it moves
`heads`: links from wherever a head is named to its own page
`texts`: which text a screen looks at
"""
