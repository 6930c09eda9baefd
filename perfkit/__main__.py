"""`python -m perfkit`."""

import sys

from perfkit.cli.main import main

sys.exit(main())
