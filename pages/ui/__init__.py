"""Parts of the screens: a package for each screen, and packages that screens share.

`page`: what every page stands in
`figures`: charts, texts and pictures
`controls`: controls that several screens have
`downloads`: what every screen ends with
`comparison`: two models side by side, and criteria compared
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
`sweeps`: parts of the Sweeps screen
`study_report`: a study as a folder of figures with one report; it looks into three screens' tables and charts
"""
