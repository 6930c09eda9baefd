"""A capacity plan from results: what one replica serves, how many are needed, at what cost, and until when.

`inputs` and `evidence` (what was measured) → `rate_points` (pooled by rate, with curves) and `performance_models` (theory, validated)
→ `configuration` (the plan of one configuration) → `planner` (the entry: the plan over all configurations) → `model`.
"""
