"""What the documentation site needs besides MkDocs: hooks, and what is put together from the repository's own files. Not part of the package."""
