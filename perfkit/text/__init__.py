"""Text from outside perfkit, made harmless for the place where it is shown."""
