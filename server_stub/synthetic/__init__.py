"""The model `synthetic`: requests are answered when a declared queue says so, whatever the machine was doing.

`law` what is declared · `declaration` how it is written · `queue` when each request departs, pure ·
`departures` those who wait for theirs · `model` all of it behind the fronts.
"""
