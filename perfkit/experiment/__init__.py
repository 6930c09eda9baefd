"""Many runs, or load points, each decided by what was measured before; the decisions are pure code in `stats`."""
