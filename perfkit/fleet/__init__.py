"""Workers under load: an event loop each, which knows no siblings."""
