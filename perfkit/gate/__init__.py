"""A candidate server compared with a baseline, to a verdict.

- Entries: `paired_gate` measures two targets in turn; `stored_gate` compares stored results.
- Tests, pure: `paired`, `stored_runs`.
- Decisions, pure: `paired_decision`, or why there is none, `stored_runs`; `metrics` serves both.
- Texts, pure: `sentences`, `next_steps` with `undecided`.
- Models: `verdict`, `baseline` and its file, `pairs`, `accepted` (what of a verdict is accepted).
- `bisect/`: the bisection by paired gates.
- Measuring and storing: `schedule`, `arm`, `trial`, `pairs`, `folder` with its manifest.
"""
