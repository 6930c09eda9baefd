"""The models that a server offers, for the message about a model that it does not know."""

from collections.abc import Sequence

from perfkit.errors import TargetError, nearest
from perfkit.protocol.message import IndexedModel
from perfkit.target_client import Client

_MAX_NAMES, _MAX_REASON_CHARACTERS = 20, 200
_NOT_READY = ("UNAVAILABLE", "LOADING", "UNLOADING", "UNKNOWN")


async def offered_instead(client: Client, model: str, version: str = "") -> str:
    """The end of the message about an unknown model: its state in the repository, its other versions, or the models offered instead.

    Models with a similar name come first. Empty if the server has no repository index.
    """
    try:
        index = await client.model_index()
    except TargetError:
        return ""
    ready = [one.version for one in index if one.name == model and one.version and one.state not in _NOT_READY]
    states = [one for one in index if one.name == model and version in ("", one.version) and one.state in _NOT_READY]
    if version and ready and not states and version not in ready:
        return f"; it offers version {listed(sorted(ready))} of this model, not {version}"
    if states:
        reason = states[0].reason[:_MAX_REASON_CHARACTERS]
        return f"; its repository has it as {states[0].state}{f': {reason}' if reason else ''}"
    names = nearest_first(model, ready_models(index))
    if model in names:
        return "; its repository has it"
    return f"; it offers {listed(names)}" if names else ""


def ready_models(index: Sequence[IndexedModel]) -> list[str]:
    """The names of the models with a version that is ready or whose state the server does not give."""
    return list(dict.fromkeys(one.name for one in index if one.state not in _NOT_READY))


def nearest_first(word: str, names: Sequence[str]) -> list[str]:
    """The names, those similar to the word first."""
    near = nearest(word, names, most=5)
    return [*near, *(name for name in names if name not in near)]


def listed(names: Sequence[str]) -> str:
    """The first names in words: `a, b and 3 more`."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")
