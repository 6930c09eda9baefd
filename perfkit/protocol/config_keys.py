"""A model's configuration as keys and short texts, so that two can be told apart by what differs, not only by a digest. Pure."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

DIGEST = "digest "
"""How the text of a value begins that is too long to be stored, or may be a secret."""
_MOST_KEYS, _LONGEST_KEY, _LONGEST_VALUE, _DEEPEST = 300, 200, 60, 8
_SECRETIVE = "parameters"  # whose values backends define, such as credentials of a store


def config_keys(document: Mapping[str, Any]) -> dict[str, str]:
    """The configuration's values by dotted key, such as `dynamic_batching.max_queue_delay_microseconds`; at most 300 of them."""
    return dict(sorted((key, text) for key, text in _flat(document, ()) if 0 < len(key) <= _LONGEST_KEY)[:_MOST_KEYS])


def _flat(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    is_secretive = path[:1] == (_SECRETIVE,)
    if len(path) < (2 if is_secretive else _DEEPEST):
        parts = list[tuple[str, object]]()
        if isinstance(value, Mapping):
            parts = [(str(key), one) for key, one in value.items()]
        elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
            parts = [(str(index), one) for index, one in enumerate(value)]
        if parts:
            for key, one in parts:
                yield from _flat(one, (*path, key))
            return
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if is_secretive or len(text) > _LONGEST_VALUE:
        text = f"{DIGEST}{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:12]}"
    yield ".".join(path), text
