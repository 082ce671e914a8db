"""Page frame: heading, address, jobs, presentation mode.

`runtime`: set-up that all tabs share, and the one place that shows errors
`screens`: the heading of every screen, what it is for, and the order that tells the story
`address`: what the address says of controls, put right
`widget_writes`: what the app itself writes into a widget, held until the browser has drawn it
`defaults`: the two axes, and what measuring begins with
`work`: jobs on screen: progress, a cancel button, a part of the page that redraws itself
`offers`: a model of the hub that is not here: looked up and downloaded once somebody agrees
`saved_views`: saved views: links with a name, in an order
`presentation`: presentation mode, light or dark, and stepping through saved views
`components`: the app's own components: HTML, with stylesheets and scripts from files
`front_page`: the page for the browser, with the script that makes one history entry of each action
`security_headers`: who may ask the server, and what its pages may ask of others
`marks`: invisible elements that tests and scripts wait for
`tables`: numbers in words, tables as files
`streamlit_internals`: the private parts of Streamlit that the app uses, and the styles and mends of its elements
"""
