import pathlib

import pytest

from benchmarks.peers.install import (
    PACKAGES,
    Interpreter,
    MissingError,
    Peer,
    check,
    choose_python,
    choose_runtime,
    debian_mirror,
    missing_packages,
    parse_glibc,
    peers_folder,
)

LIBRARY = pathlib.Path("/usr/lib/libpython.so.1.0")


@pytest.mark.parametrize(
    ("text", "version"), [("glibc 2.36", (2, 36)), ("glibc 2.4.1", (2, 4)), ("musl 1.2", None), ("glibc", None), ("", None), (None, None)]
)
def test_the_c_librarys_version_is_parsed(text, version):
    assert parse_glibc(text) == version


@pytest.mark.parametrize(
    ("glibc", "distribution", "release"),
    [((2, 36), "debian", "trixie"), ((2, 4), "debian", "trixie"), ((2, 38), "debian", None), ((3, 0), "ubuntu", None)],
)
def test_a_newer_c_library_is_chosen_only_if_the_systems_is_too_old(glibc, distribution, release):
    assert choose_runtime(glibc, distribution) == release


@pytest.mark.parametrize(
    ("glibc", "distribution", "message"), [((2, 35), "ubuntu", "has glibc 2.35"), (None, "alpine", "another C library")]
)
def test_without_a_usable_c_library_the_error_names_the_systems(glibc, distribution, message):
    with pytest.raises(MissingError, match=message):
        choose_runtime(glibc, distribution)


@pytest.mark.parametrize(
    ("texts", "mirror"),
    [
        (["deb http://one.example/debian bookworm main\n"], "http://one.example/debian"),
        (["deb [signed-by=/k arch=amd64] http://one.example/debian/ bookworm main"], "http://one.example/debian/"),
        (["deb http://one.example/debian-security bookworm main\ndeb http://two.example/debian bookworm main"], "http://two.example/debian"),
        (["# deb http://off.example/debian bookworm main\ndeb-src http://source.example/debian bookworm main"], None),
        (["Types: deb\n# URIs: http://old.example/debian\nURIs: http://one.example/debian\nSuites: bookworm\n"], "http://one.example/debian"),
        (["URIs: http://s.example/debian-security\n\nTypes: deb\nURIs:\n http://x.example/other\n http://one.example/debian\nSuites: b"],
         "http://one.example/debian"),
        (["Enabled: no\nURIs: http://off.example/debian\n\nEnabled: yes\nURIs: http://one.example/debian"], "http://one.example/debian"),
        (["", "deb http://one.example/ubuntu noble main"], None),
        ([], None),
    ],
)  # fmt: skip
def test_the_debian_archive_is_found_in_apts_source_lists(texts, mirror):
    assert debian_mirror(texts) == mirror


def test_only_missing_packages_are_installed():
    assert missing_packages(lambda command: command != "nghttpd", has_venv=True) == ["nghttp2-server"]
    assert missing_packages(lambda _: None, has_venv=False) == [*PACKAGES.values(), "python3-venv"]
    assert missing_packages(lambda _: "/usr/bin/it", has_venv=True) == []


def test_the_first_python_that_triton_can_use_is_chosen():
    too_new, fixed = Interpreter("/opt/new", (3, 14), LIBRARY), Interpreter("/opt/fixed", (3, 11), None)
    good, better = Interpreter("/usr/bin/good", (3, 11), LIBRARY), Interpreter("/usr/bin/better", (3, 12), LIBRARY)
    assert choose_python([too_new, fixed, good, better]) is good


def test_without_a_usable_python_the_error_lists_each_candidate():
    with pytest.raises(MissingError) as caught:
        choose_python([Interpreter("/opt/new", (3, 14), LIBRARY), Interpreter("/opt/fixed", (3, 11), None)])
    assert "/opt/new is Python 3.14; /opt/fixed has no shared libpython (Debian has it as libpython3.11)" in str(caught.value)


def test_the_folder_argument_has_precedence_over_the_environment():
    assert peers_folder(pathlib.Path("/a"), {"PERFKIT_PEERS": "/b"}) == pathlib.Path("/a")
    assert peers_folder(None, {"PERFKIT_PEERS": "/b"}) == pathlib.Path("/b")
    assert peers_folder(None, {"PERFKIT_PEERS": ""}) == pathlib.Path.home() / ".cache" / "perfkit-peers"


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("#!/bin/sh\necho 'tool 1.2' >&2; exit 1\n", "1.2"),  # as wrk does
        ("#!/bin/sh\necho hello\n", None),
        ("#!/no/such/interpreter\n", None),
    ],
)
def test_a_peer_answers_if_it_prints_its_version(tmp_path, script, version):
    program = tmp_path / "tool"
    program.write_text(script)
    program.chmod(0o755)
    assert check(Peer("tool", program, (str(program),), r"tool (\S+)")) == version


def test_a_missing_peer_does_not_answer(tmp_path):
    assert check(Peer("tool", tmp_path / "tool", ("true",), r"(.*)")) is None
    assert check(Peer("tool", None, ("true",), r"(.*)")) is None
