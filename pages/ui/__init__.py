"""Parts of the screens: a package for each screen, and packages that screens share.

`page`: the frame of every page
`figures`: charts, texts and pictures
`controls`: controls that several screens have
`downloads`: the footer of every screen
`sections`: measurements on a screen, each declared by a request
`prune`: parts of the Prune screen
`importance`: parts of the Importance screen
`induction`: parts of the Induction screen
`head`: parts of the Head screen
`passage`: parts of the Passage screen
`continuation`: parts of the Continue screen
`attention`: parts of the Attention screen
`training`: parts of the Training screen
`in_context`: parts of the In context screen
`correlations`: parts of the Correlations screen
`study_report`: a study as a folder of figures with one report; it uses tables and charts of three screens
"""
