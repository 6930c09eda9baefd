"""What a machine must fulfil before it sends load. Pure."""

from collections.abc import Iterator

from perfkit.fleet.messages import Hello
from perfkit.workers.local import WORKER_FILES


def version_fault(hello: Hello, version: str) -> str:
    """Why a machine cannot join a driver of this version of perfkit; empty if it can."""
    if hello.version == version:
        return ""
    return f"perfkit {hello.version} is installed there, and {version} here: install the same version on both"


def limit_faults(hello: Hello, connections: int, workers: int) -> Iterator[str]:
    """What a machine lacks for its share of the load: `connections` by `workers` processes."""
    files = WORKER_FILES + -(-connections // max(workers, 1))
    if files > hello.open_files:
        yield (
            f"each of its {workers} worker processes needs {files:,} open files and sockets, and the limit there is {hello.open_files:,}: "
            f"raise it there, such as `ulimit -n {2 * files}` before `perfkit worker`, or use more machines"
        )
    if hello.ports is not None and connections > hello.ports:
        yield (
            f"it needs {connections:,} connections, and has {hello.ports:,} local ports for one address: widen "
            "net.ipv4.ip_local_port_range there, lower target.max_connections, or use more machines"
        )
