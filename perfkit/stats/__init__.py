"""Statistics as pure functions of numbers; each formula names its source."""
