"""Whether a host is this machine: decided by the addresses that its name resolves to, and by the kernel's routes."""

import functools
import ipaddress
import socket


def is_loopback(host: str) -> bool:
    """Whether a name or IP address means the loopback without being resolved."""
    if host == "localhost" or host.endswith(".localhost"):  # reserved for the loopback (RFC 6761, 6.3)
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_this_machine(host: str) -> bool:
    """Whether all addresses of a name, or an IP address, are this machine's; False for a name that cannot be resolved.

    A name is resolved once in a process, which blocks.
    """
    try:
        return is_loopback(host) or _resolves_here(host)
    except (OSError, UnicodeError):
        return False


@functools.lru_cache(maxsize=4096)
def _resolves_here(host: str) -> bool:
    """Raises OSError, which is not cached."""
    found = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)
    return all(_is_own(family, place) for family, _, _, _, place in found)


def _is_own(family: socket.AddressFamily, place: tuple[int | str | bytes, ...]) -> bool:
    """Whether datagrams to an address would leave from the same one: so the kernel routes to addresses of its own. Nothing is sent."""
    text = str(place[0]).partition("%")[0]
    if is_loopback(text) or ipaddress.ip_address(text).is_unspecified:
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(place)
        except OSError:  # no route
            return False
        return bool(probe.getsockname()[0] == place[0])
