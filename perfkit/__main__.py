"""`python -m perfkit`, the same as the command `perfkit`: no code of the current folder is run."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder, before anything is imported: a file there may have the name of a library

try:
    from perfkit.cli.main import main
except KeyboardInterrupt:  # loading takes long enough for somebody to change their mind
    sys.exit(130)

sys.exit(main())
