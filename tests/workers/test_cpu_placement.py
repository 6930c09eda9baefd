"""Who gets which CPUs, and when sharing them is said."""

import pytest

from perfkit.errors import UsageError
from perfkit.scenario.model import Scenario
from perfkit.workers.local import Placement, place


def scenario(url=None, server_cpus=None, driver_cpus=None, command=None):
    document = {
        "name": "s",
        "target": {"model": "m", **({"url": url} if url else {}), **({"command": command} if command else {})},
        "load": {"closed": {"concurrency": 1}},
        "server": {"cpus": server_cpus} if server_cpus else {},
        "measure": {"cpus": driver_cpus} if driver_cpus else {},
    }
    return Scenario.model_validate(document)


@pytest.mark.parametrize(
    ("server_cpus", "driver_cpus", "usable", "server", "driver"),
    [
        (None, None, [0, 1], (0,), (1,)),
        (None, None, [2, 3, 6, 7], (2, 3, 6), (7,)),
        ([3], None, [0, 1, 2, 3], (3,), (2,)),
        (None, [0], [0, 1, 2], (1, 2), (0,)),
        ([0], [2], [0, 1, 2], (0,), (2,)),
    ],
)
def test_the_bundled_server_and_the_load_generator_get_separate_cpus(server_cpus, driver_cpus, usable, server, driver):
    placement = place(scenario(None, server_cpus, driver_cpus), usable)
    assert (placement.server, placement.driver, placement.conflict) == (server, driver, "")


@pytest.mark.parametrize(
    ("server_cpus", "driver_cpus", "usable", "shared"),
    [(None, None, [5], "5"), ([0, 1], None, [0, 1], "1"), ([0, 1], [1, 2], [0, 1, 2], "1")],
)
def test_shared_cpus_are_named(server_cpus, driver_cpus, usable, shared):
    assert f"share CPU {shared}:" in place(scenario(None, server_cpus, driver_cpus), usable).conflict


@pytest.mark.parametrize(("command", "url"), [("serve {port}", None), ("serve", "unix:/run/v2.sock")])
def test_the_server_of_a_command_is_placed_like_the_bundled_one(command, url):
    placement = place(scenario(url, command=command), [0, 1])
    assert (placement.server, placement.driver, placement.conflict) == ((0,), (1,), "")
    assert place(scenario(url, command=command), [5]).conflict.startswith("The server and the load generator share CPU 5:")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "unix:/run/v2.sock"])
def test_a_target_on_this_machine_may_share_its_cpus_and_a_remote_one_does_not(url):
    placement = place(scenario(url), [0, 1])
    assert (placement.server, placement.driver) == ((), ())
    assert "runs on this machine" in placement.conflict
    assert place(scenario("grpc://models.example:8001"), [0, 1]).conflict == ""


def test_a_cpu_that_this_process_may_not_use_is_refused():
    with pytest.raises(UsageError, match="this process may not use CPU 7"):
        place(scenario(None, [7]), [0, 1])


@pytest.mark.parametrize(
    ("driver", "usable", "shares_machine", "most"),
    [
        ((), 8, False, 8),
        ((), 8, True, 7),
        ((), 2, True, 1),
        ((), 1, True, 1),
        ((6, 7), 8, True, 2),
    ],
)
def test_auto_leaves_a_cpu_to_a_target_on_this_machine(driver, usable, shares_machine, most):
    assert Placement((), driver).most_workers(usable, shares_machine=shares_machine) == most
