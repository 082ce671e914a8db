"""What two screens or more use: set-up, jobs on screen, controls, charts and the shell command.

`runtime`: set-up that all tabs share, and the one place that shows errors
`screens`: the heading of every screen, what it is for, and the order that tells the story
`sidebar`: which model in which precision, where task data lie, how the result store does
`against`: what the sidebar's model is compared with: one control and one word of the address for all screens
`second`: that second model, on the screens that set two side by side
`pairs`: scores of two models' heads: maps on one scale, a point a head, the largest differences
`streamlit_internals`: the private parts of Streamlit that the app uses, and the styles and mends of its elements
`front_page`: the page for the browser, with the script that makes one history entry of each action
`gate`: who may ask the server, and what its pages may ask of others
`offers`: a model of the hub that is not here: looked up and downloaded once somebody agrees
`views`: saved views: links with a name, in an order
`stage`: presentation mode, light or dark, and stepping through saved views
`work`: jobs on screen: progress, a cancel button, a part of the page that redraws itself
`address`: what the address says of controls, put right
`controls`: task, ranking, levels and mask, bound to the address
`task_box`: the box that a task is chosen in
`own_questions`: a user's own questions: the path of a file, or an upload
`pruning`: what is pruned in a text: two levels, a mask, a ranking
`many_tasks`: what the screens about many tasks share
`break_points`: how far pruning can go, in words
`criteria`: criteria compared: what is chosen, measured and drawn
`criteria_charts`: their chart, and how much they agree
`criteria_tables`: the same as tables and sentences
`written`: what the app itself writes into a widget, held until the browser has drawn it
`carried`: what is pruned, taken over from screen to screen
`drag_slider`: a slider that reports while it moves
`heads`: links from wherever a head is named to its own page
`induction_scores`: what the six induction scores are called, and what they say
`head_sets`: sets of heads ablated together, as a chart and a sentence
`texts`: which text a screen looks at
`defaults`: the two axes, and what measuring begins with
`charts`: what all charts are made of, and how they become files
`drawing`: pictures on screen
`marks`: invisible elements that tests and scripts wait for
`colours`: the colours that are not the theme's
`tables`: numbers in words, tables as files
`published`: published accuracies of the full model, beside those measured here
`origin`: all that says where a screen's numbers come from
`measured`: how what is shown was measured: the stored receipts, and the link
`token_text`: a component that sets a text, each token tinted, with a readout beside it
`text_picture`: a text with its tints as a picture, for files
`exports`: a screen as one archive and as one page
`closing`: what every screen ends with: command, program, receipts, and all it shows as files
"""
