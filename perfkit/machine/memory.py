"""The memory that a run needs, multiplied before anything is made, and held against what is available."""

from perfkit.errors import ScenarioError
from perfkit.machine.limits import available_memory_bytes
from perfkit.units import format_bytes

# the rest is for the encoded copies, for those of the worker processes, and for everyone else
_SHARE = 4


class MemoryBudget:
    """Adds up what is about to be made; its limit is a quarter of the available memory, here that of the machine by default."""

    def __init__(self, available_bytes: int | None = None) -> None:
        self._available_bytes = available_memory_bytes() if available_bytes is None else available_bytes
        self._reserved_bytes = 0

    def reserve(self, key: str, needed_bytes: int, arithmetic: str, keys: str) -> None:
        """Takes a part of the budget.

        `arithmetic` says how the size came about, `keys` which keys of the scenario reduce it. Raises ScenarioError if it is too much.
        """
        before_bytes, self._reserved_bytes = self._reserved_bytes, self._reserved_bytes + needed_bytes
        if self._available_bytes is None or self._reserved_bytes * _SHARE <= self._available_bytes:
            return
        others = f", besides {format_bytes(before_bytes)} for others" if before_bytes >= 2**20 else ""
        raise ScenarioError(
            f"{key}: {arithmetic} = {format_bytes(needed_bytes)} of memory{others}; a run may take "
            f"{format_bytes(self._available_bytes / _SHARE)}, a quarter of the {format_bytes(self._available_bytes)} that are available: "
            f"reduce {keys}"
        )
