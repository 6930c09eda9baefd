"""The receiver of a run's spans."""
