"""The result of a run: the only truth, from which every report is drawn."""
