"""Load generation and benchmarking for servers that speak the v2 / Open Inference Protocol.

`perfkit.run`, `perfkit.arun`, `perfkit.load_scenario`, `perfkit.load_result`, `perfkit.Result` and `perfkit.Scenario` are the Python
interface (docs/how-to/python.md); they are imported when first used. `docs/architecture.md` is the map of the packages.
"""

# true for type checkers; `typing` is not imported here, because `python -m perfkit` has the current folder on its path at this point
TYPE_CHECKING = False

if TYPE_CHECKING:
    from perfkit.api import Result, Scenario, arun, load_result, load_scenario, run

__version__ = "0.1.0"
__all__ = ["Result", "Scenario", "__version__", "arun", "load_result", "load_scenario", "run"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'perfkit' has no attribute {name!r}")
    from perfkit import api

    return getattr(api, name)
