"""The result of a run: the single source of every report, plan and verdict."""
