"""Numbers from numbers: pure, with the source of each formula beside it."""
