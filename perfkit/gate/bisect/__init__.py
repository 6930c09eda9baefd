"""The bisection of a regression by paired gates of the revisions that `perfkit.bisection` names.

- `bisection` drives it, and says what it found; `revision_pairs` measures the revisions with real servers.
- Pure: `revision_decision` (the answer about one revision).
"""
