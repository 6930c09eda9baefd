"""Which CPUs the bundled server and the load generator get, so that neither takes time from the other."""

import dataclasses
from collections.abc import Sequence

from perfkit.errors import UsageError
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """CPUs to pin to, none for no pinning; `conflict` is the sentence for CPUs that are shared, empty where none are."""

    server: tuple[int, ...]
    driver: tuple[int, ...]
    conflict: str = ""


def place(scenario: Scenario, usable: Sequence[int]) -> Placement:
    """Where the scenario says nothing, the driver takes the last usable CPU, one for each worker, and the bundled server all others.

    A target elsewhere has CPUs of its own; one on this machine may run anywhere on it. Raises UsageError for a CPU
    that this process may not use.
    """
    server, driver = scenario.server.cpus or (), scenario.measure.cpus or ()
    missing = sorted({*server, *driver} - set(usable))
    if missing:
        raise UsageError(f"server.cpus and measure.cpus: CPU {missing[0]} is not among those this process may use: {list(usable)}")
    if scenario.target.url is not None:
        message = f"The target runs on this machine: server and load generator may take the {len(usable)} CPUs from each other."
        return Placement((), driver, message if Address.parse(scenario.target.url).is_local else "")
    workers = 1 if scenario.measure.workers == "auto" else scenario.measure.workers
    if len(usable) > 1:
        free = tuple(cpu for cpu in usable if cpu not in server)
        most = len(free) if server else max(len(free) - 1, 1)  # one at least is left to the server
        driver = driver or free[-min(workers, most) :] or tuple(usable[-1:])
        server = server or tuple(cpu for cpu in usable if cpu not in driver) or tuple(usable)
    shared = sorted(set(server) & set(driver)) if server and driver else list(usable)
    if not shared:
        return Placement(server, driver)
    listed = ", ".join(map(str, shared))
    return Placement(
        server,
        driver,
        f"The bundled server and the load generator share CPU {listed}: give each its own with server.cpus and measure.cpus.",
    )
