"""Models: their definitions, the checks and conversion of requests, and execution."""
