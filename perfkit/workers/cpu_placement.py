"""The CPUs of a server that perfkit starts and of the load generator, chosen so that they do not disturb each other."""

import dataclasses
from collections.abc import Sequence

from perfkit.errors import UsageError
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """CPUs to pin to, empty for no pinning; `conflict` is a message about shared CPUs, empty if there are none."""

    server: tuple[int, ...]
    driver: tuple[int, ...]
    conflict: str = ""


def place(scenario: Scenario, usable: Sequence[int]) -> Placement:
    """The CPUs that the scenario sets; by default the last one per worker for the load generator, the others for the server.

    A target that perfkit did not start is not pinned. Raises UsageError for a CPU that this process may not use.
    """
    server, driver = scenario.server.cpus or (), scenario.measure.cpus or ()
    missing = sorted({*server, *driver} - set(usable))
    if missing:
        raise UsageError(f"server.cpus and measure.cpus: this process may not use CPU {missing[0]}, only {list(usable)}")
    targets = [one.target for one in scenario.plain_scenarios()]
    if not any(target.is_started for target in targets):
        urls = [url for target in targets for each in target.urls_by_protocol.values() for url in each]
        message = f"The target runs on this machine: server and load generator may compete for its {len(usable)} CPUs."
        return Placement((), driver, message if any(Address.parse(url).is_local for url in urls) else "")
    workers = 1 if scenario.measure.workers == "auto" else scenario.measure.workers
    if len(usable) > 1:
        free = tuple(cpu for cpu in usable if cpu not in server)
        limit = len(free) if server else max(len(free) - 1, 1)  # at least one remains for the server
        driver = driver or free[-min(workers, limit) :] or tuple(usable[-1:])
        server = server or tuple(cpu for cpu in usable if cpu not in driver) or tuple(usable)
    shared = sorted(set(server) & set(driver)) if server and driver else list(usable)
    advice = f"share CPU {', '.join(map(str, shared))}: separate them with server.cpus and measure.cpus."
    name = "The bundled server" if all(target.command is None for target in targets) else "The server"
    return Placement(server, driver, f"{name} and the load generator {advice}" if shared else "")
