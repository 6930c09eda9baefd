"""Where a target is, and the servers that perfkit starts."""
