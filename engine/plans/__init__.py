"""Studies split into cells that many processes measure, coordinated by files in one folder.

`cells`: a plan and its cells, as a JSON file
`planning`: points of a sweep as cells, what each needs first, and what it costs
`claims`: who has which cell in hand, and what is done: files in one folder
`worker`: takes cells until none is left
`measuring`: one cell measured, as the same sweep would
`sharing`: what it owes those who wait elsewhere for its results
`status`: how all workers stand
`forecast`: what a study takes on given devices, before the model is there
`on_ray`: a plan worked on by actors of Ray: what they are told, and by what they know that they see the same
`clusters`: a cluster of Ray, and how many workers it has room for
`ray_internals`: private and fragile parts of Ray
`crews`: the actors of one driver: started, listened to, and where one is lost another in its place
`actors`: the worker as such an actor
"""
