"""A candidate server compared with a baseline, to a verdict.

- Entries: `paired_gate` measures two targets in turn; `stored_gate` compares stored results.
- Decisions, pure: `paired_decision` (from `paired_values`, unless there are `faults`), `stored_comparison`; `metrics` serves both.
- Texts, pure: `sentences`, `faults`, `next_steps` with `undecided`.
- Models: `verdict`, `baseline` and its file, `pairs`.
- `bisect/`: the bisection by paired gates.
- Measuring and storing: `arm`, `trial`, `pairs`, `folder`.
"""
