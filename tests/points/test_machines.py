"""The warnings about a fleet's machines."""

from types import SimpleNamespace
from typing import Any

from perfkit.points import shares


def test_only_the_machines_farthest_from_the_middle_are_compared_with_the_others(monkeypatch):
    compared, unlike_ns = [], {"m7": 500, "m3": 10}

    def apart(name):
        compared.append(name)
        return (name, unlike_ns[name], 100) if name in unlike_ns else None

    monkeypatch.setattr(shares, "_apart", lambda name, _: apart(name))
    medians_ns = {f"m{number}": 100 + number % 3 for number in range(1000)} | unlike_ns | {"m9": None}
    machines: Any = [SimpleNamespace(name=name, times_ns=SimpleNamespace(p50=p50), clock_bound_ns=0) for name, p50 in medians_ns.items()]
    (warning,) = shares.machine_warnings(machines, [], None)
    assert warning.message.startswith("m3 saw a faster target than the other machines: p50 10.0 ns, and 100 ns there")
    assert {"m3", "m7"} <= set(compared)
    assert len(compared) <= 10
