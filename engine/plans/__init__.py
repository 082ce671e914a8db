"""Studies split into cells that many processes measure, coordinated by files in one folder.

`cells`: a plan and its cells, as a JSON file
`planning`: points of a sweep as cells, what each needs first, and what it costs
`claims`: leases on cells and finished cells, as files in one folder
`worker`: takes cells until none is left, and shares what it measured
`measuring`: one cell measured, as the same sweep would
`status`: how all workers stand
`on_ray`: runs a plan with Ray actors, and checks that they see the same files
`clusters`: a cluster of Ray, and how many workers it has room for
`ray_internals`: private and fragile parts of Ray
`crews`: the actors of one driver: started, listened to, and where one is lost another in its place
`actors`: the worker as such an actor
"""
