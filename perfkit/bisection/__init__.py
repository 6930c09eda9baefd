"""A bisection: which of the revisions between a fast and a slow one is the first that is slower.

- Pure: `search` (which revision to measure next, what counts as slower, and the exact tests).
- `revisions` (the path between two revisions, each checked out and built): git and the build command.
- `folder`: the document, and the folder that stores it and its progress.

The gates themselves are run by `perfkit.gate.bisect`.
"""
