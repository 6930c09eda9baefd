"""Results compared without a verdict."""
