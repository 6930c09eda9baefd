"""The loops that send requests: they know transports and clocks, and hand every reply to a callable."""
