"""Listening sockets and their processes, as they are here and as /proc may show them."""

import contextlib
import os
import pathlib
import socket

import psutil

from perfkit.machine.listeners import read_listeners


def test_sockets_that_listen_are_found_with_their_process_and_others_are_not(tmp_path):
    path = str(tmp_path / "a b")
    with contextlib.ExitStack() as sockets:
        listening = [sockets.enter_context(socket.socket(family)) for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)]
        listening[0].bind(("127.0.0.1", 0))
        listening[1].bind(("::1", 0))
        listening[2].bind(path)
        for one in listening:
            one.listen()
        client = sockets.enter_context(socket.create_connection(listening[0].getsockname()))
        found = read_listeners()
        own = {place for place, pid in found if pid == os.getpid()}
        assert {listening[0].getsockname()[1], listening[1].getsockname()[1], path} <= own
        assert client.getsockname()[1] not in {place for place, _ in found}
        known = {one.laddr.port for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN and one.pid == os.getpid()}
    assert {place for place in own if isinstance(place, int)} == known


def test_a_socket_of_a_process_that_cannot_be_seen_has_none(write):
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
    row = "   0: 0100007F:{:04X} 00000000:0000 {} 00000000:00000000 00:00000000 00000000     0        0 {} 1 0 100 0 0 10 0"
    texts = {
        "proc/net/tcp": "\n".join([head, row.format(8000, "0A", 71), row.format(8001, "01", 72), row.format(8002, "0A", 73)]),
        "proc/net/unix": "Num RefCount Protocol Flags Type St Inode Path\n0: 2 0 10000 1 1 74 /run/a b\n0: 2 0 10000 1 1 75",
    }
    root = write(texts)
    (root / "proc/12/fd").mkdir(parents=True)
    (root / "proc/12/fd/3").symlink_to("socket:[73]")
    (root / "proc/12/fd/4").symlink_to("/dev/null")
    (root / "proc/13").mkdir()
    assert set(read_listeners(root)) == {(8000, None), (8002, 12), ("/run/a b", None)}


def test_a_system_without_proc_has_no_listeners(tmp_path: pathlib.Path):
    assert read_listeners(tmp_path) == []
