"""Many runs in a row, each decided by pure code in `stats`."""
