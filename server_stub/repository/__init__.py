"""Models by name and version, and the sources they are loaded from."""
