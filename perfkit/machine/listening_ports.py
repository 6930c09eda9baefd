"""The TCP ports on which a process listens, with everything that it started."""

import psutil


def listening_ports(pid: int) -> frozenset[int] | None:
    """The ports of a process and its descendants; None if the system does not say."""
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None
    ports: set[int] = set()
    is_known = False
    for process in processes:
        try:
            ports.update(one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN)
            is_known = True
        except psutil.Error:  # it has ended, or is another user's
            continue
    return frozenset(ports) if is_known else None
