"""`python -m perfkit`."""

import sys

try:
    from perfkit.cli.main import main
except KeyboardInterrupt:  # loading takes long enough for somebody to change their mind
    sys.exit(130)

sys.exit(main())
