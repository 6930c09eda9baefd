"""The commands: one module each that parses, calls, and says the exit code."""
