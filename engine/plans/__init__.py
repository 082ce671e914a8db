"""A study as cells that many processes measure, on one machine or many, with nothing between them but a folder.

`cells`: a plan and its cells, as a JSON file
`planning`: points of a sweep as cells, what each needs first, and what it costs
`claims`: who has which cell in hand, and what is done: files in one folder
`worker`: takes cells until none is left
`measuring`: one cell measured, as the same sweep would
`status`: how all workers stand
`forecast`: what a study would take elsewhere, from a model's outline alone
"""
