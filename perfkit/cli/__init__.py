"""The commands, one module each: options, the call that does the work, and the exit code."""
