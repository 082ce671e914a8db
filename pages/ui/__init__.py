"""Parts of the screens: a package for each screen, and packages that screens share.

A package of one screen is named as the screen's file is; a screen of sections alone has none. The others:
`page`: the frame of every page
`figures`: charts, texts and pictures
`controls`: controls that several screens have
`downloads`: Export and slides, on every screen
`sections`: measurements on a screen, each declared by a request
`paper_report`: a paper study as a folder of figures with one report
"""
