"""Criteria compared.

`criteria`: criteria compared: selection, measurement and drawing
`criteria_charts`: their chart, and their agreement
`criteria_tables`: the same as tables and sentences
"""
