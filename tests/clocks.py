"""A clock that tests set by hand."""


class SettableClock:
    """Stands still until `ns` is set."""

    def __init__(self):
        self.ns = 0

    def now_ns(self):
        return self.ns

    async def sleep_until_ns(self, instant_ns):
        self.ns = max(self.ns, instant_ns)
