"""Whether a host is this machine, beside the addresses that psutil lists for its interfaces."""

import socket

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.machine.own_addresses import is_this_machine

OWN = sorted(
    f"{one.address.partition('%')[0]}{'%' + name if one.address.startswith('fe80') else ''}"
    for name, settings in psutil.net_if_addrs().items()
    if psutil.net_if_stats()[name].isup
    for one in settings
    if one.family in (socket.AF_INET, socket.AF_INET6)
)


@pytest.mark.parametrize("host", OWN)
def test_each_address_of_an_interface_is_this_machine(host):
    assert is_this_machine(host)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_other_addresses_are_not(address):
    mapped = getattr(address, "ipv4_mapped", None) or address
    is_own = str(mapped) in OWN or mapped.is_loopback or mapped.is_unspecified
    assert is_this_machine(str(address)) == is_own


def test_a_name_that_cannot_be_resolved_is_not():
    assert not is_this_machine("name.invalid")
