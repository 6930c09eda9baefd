"""Load generation and benchmarking for servers that speak the v2 / Open Inference Protocol.

`perfkit.run`, `perfkit.load_scenario` and `perfkit.Result` are the Python interface; they are imported when first used.
`docs/architecture.md` is the map of the packages.
"""

TYPE_CHECKING = False  # as type checkers know it; `python -m perfkit` has the current folder on the path here, and imports nothing

if TYPE_CHECKING:
    from perfkit.api import Result, load_scenario, run

__version__ = "0.1.0"
__all__ = ["Result", "__version__", "load_scenario", "run"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'perfkit' has no attribute {name!r}")
    from perfkit import api

    return getattr(api, name)
