"""`typing.override`, which Python 3.11 lacks; its backport would add its import to the start of every process."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])

if TYPE_CHECKING:
    from typing_extensions import override as override  # noqa: PLC0414 - exported
else:

    def override(method: _Method) -> _Method:
        """Marks a method that implements or replaces one of a base class, whose docstring describes it."""
        return method
