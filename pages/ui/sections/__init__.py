"""Measurements on a screen, each declared by a request.

`section`: a section, and how it is drawn, from "not measured" to its finding
`form`: a request as a form, made from its fields
"""
