"""This machine as a load generator: the cost of a request, the resulting ceiling, and the precision of its timers."""
