"""The loops that send requests through a transport and pass each reply to a callable."""
