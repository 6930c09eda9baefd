"""The files and sockets that a run needs, against the limit."""

import errno

import pytest

from perfkit.errors import MeasurementError, TargetError
from perfkit.measurement.connections import describe_shortage, file_needs
from perfkit.target.address import Address
from perfkit.transport.connect import FILE_LIMIT, unreachable


@pytest.mark.parametrize(
    ("workers", "has_server", "most"), [(1, False, "each worker"), (1, True, "the bundled server"), (4, False, "each worker")]
)
def test_the_process_that_needs_most_decides_and_its_arithmetic_adds_up(workers, has_server, most):
    needs = file_needs(open_now=10, has_started=True, connections=100, workers=workers, has_server=has_server)
    highest = max(need.files for need in needs)
    assert describe_shortage(needs, highest) == ""
    text = describe_shortage(needs, highest - 1)
    assert f"{most} needs {highest} open files and sockets (" in text
    assert f"and the limit is {highest - 1}: raise it, such as `ulimit -n 1024`" in text
    summands = [int(word) for word in text.partition("(")[2].partition(")")[0].split() if word.isdecimal() and int(word) != workers]
    assert sum(summands) == highest


def test_children_that_are_still_to_start_are_counted():
    needs = [file_needs(open_now=10, has_started=started, connections=5, workers=1, has_server=False)[0].files for started in (False, True)]
    assert needs[0] > needs[1] > 15


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_connection_that_fails_at_the_file_limit_is_no_fault_of_the_target(number):
    error = unreachable(Address.parse("http://h:1"), OSError(number, "Too many open files"))
    assert isinstance(error, MeasurementError)
    assert str(error).startswith(f"{FILE_LIMIT}, so http://h:1 could not be connected to. Raise the limit")
    assert isinstance(unreachable(Address.parse("http://h:1"), OSError(errno.ECONNREFUSED, "refused")), TargetError)
