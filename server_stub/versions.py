"""Which versions of a model are served."""

import dataclasses
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class VersionPolicy:
    """The `latest` so many, or exactly the `specific` ones as far as they are there, or all where both are None."""

    latest: int | None = 1
    specific: tuple[int, ...] | None = None

    def choose(self, available: Iterable[int]) -> list[int]:
        """Those that are served, ascending."""
        versions = sorted(available)
        if self.specific is not None:
            return [version for version in versions if version in self.specific]
        return versions if self.latest is None else versions[-self.latest :]

    def config(self) -> dict[str, Any]:
        """The policy as model configurations have it."""
        if self.specific is not None:
            return {"specific": {"versions": list(self.specific)}}
        return {"all": {}} if self.latest is None else {"latest": {"num_versions": self.latest}}


LATEST = VersionPolicy()
