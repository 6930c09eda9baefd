"""A clock and an event loop's timers that move only when a test advances them."""

import asyncio


class _Timer:
    def __init__(self, due_ns, callback):
        self.due_ns, self.callback = due_ns, callback
        self.is_cancelled = False

    def cancel(self):
        self.is_cancelled = True


class ManualTime:
    """Stands in for `loop` in a pool: `call_later` follows `advance`, everything else is the running event loop's."""

    def __init__(self):
        self.now_ns = 0
        self._loop = asyncio.get_running_loop()
        self._timers = []

    def read_ns(self):
        return self.now_ns

    def call_later(self, delay_s, callback):
        self._timers.append(_Timer(self.now_ns + round(delay_s * 1e9), callback))
        return self._timers[-1]

    def advance(self, duration_ns):
        """Moves the clock and calls the timers that become due, each at its own time."""
        end_ns = self.now_ns + duration_ns
        while due := [timer for timer in self._timers if not timer.is_cancelled and timer.due_ns <= end_ns]:
            first = min(due, key=lambda timer: timer.due_ns)
            self._timers.remove(first)
            self.now_ns = max(self.now_ns, first.due_ns)
            first.callback()
        self.now_ns = end_ns

    @property
    def pending(self):
        """The number of timers that have neither fired nor been cancelled."""
        return sum(not timer.is_cancelled for timer in self._timers)

    def __getattr__(self, name):
        return getattr(self._loop, name)
