"""Page frame: heading, URL, jobs.

`runtime`: set-up that all tabs share, and the one place that shows errors
`screens`: heading and purpose of every screen, in the order of the story
`address`: query parameters of controls, normalized
`widget_writes`: values the app writes into a widget, held until the browser has drawn them
`defaults`: the two axes, and the defaults of measuring
`work`: jobs on screen: progress, a cancel button, a fragment that redraws itself
`reads`: complete results, kept in memory for all tabs
`job_words`: how a job stands, in words
`components`: the app's own components: HTML, with stylesheets and scripts from files
`base.css`: styles that components share
`base.js`: functions that components share
`front_page`: the HTML page, with the script that makes one history entry per action
`security_headers`: the hosts that may send requests, and the requests its pages may make
`marks`: invisible elements that tests and scripts wait for
`tables`: formats of numbers, tables as files
`streamlit_internals`: the private parts of Streamlit that the app uses, and styles and fixes of its elements
"""
