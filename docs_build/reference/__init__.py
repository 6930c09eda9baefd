"""The parts of the reference that are made from the code: `python -m docs_build.reference` writes them into the pages of `docs/reference/`."""
