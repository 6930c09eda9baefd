"""The base of all models of stored documents."""

from typing import Any

import pydantic
from pydantic import ConfigDict


class Part(pydantic.BaseModel):
    """The base of all parts: frozen, and tolerant of keys of later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)

    def document(self) -> dict[str, Any]:
        """The part as JSON values, in the order of the schema."""
        return self.model_dump(mode="json", by_alias=True)
