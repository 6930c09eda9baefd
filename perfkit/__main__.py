"""`python -m perfkit`, the same as the command `perfkit`: no code of the current folder is run."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder, before anything is imported: a file there may have the name of a library

from perfkit.cli import start

sys.exit(start())
