"""This machine as a load generator: what a request costs it, what that allows, and how exact its timers are."""
