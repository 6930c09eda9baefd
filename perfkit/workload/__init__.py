"""The requests of a run: input tensors, requests prepared ahead of time, and checks of their answers."""
