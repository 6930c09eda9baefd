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
        sockets.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        sockets.enter_context(listening[2].accept()[0])  # it has the path, too
        found = read_listeners()
        assert [place for place, _ in found].count(path) == 1
        own = {place for place, pid in found if pid == os.getpid()}
        assert {listening[0].getsockname()[1], listening[1].getsockname()[1], path} <= own
        assert client.getsockname()[1] not in {place for place, _ in found}
        known = {one.laddr.port for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN and one.pid == os.getpid()}
    assert {place for place in own if isinstance(place, int)} == known


TCP_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
TCP_ROW = "   0: 0100007F:{:04X} 00000000:0000 {} 00000000:00000000 00:00000000 00000000     0        0 {} 1 0 100 0 0 10 0"
UNIX_HEAD = "Num       RefCount Protocol Flags    Type St Inode Path"


def test_a_socket_of_a_process_that_cannot_be_seen_has_none(write):
    texts = {
        "proc/net/tcp": "\n".join(
            [TCP_HEAD, TCP_ROW.format(8000, "0A", 71), TCP_ROW.format(8001, "01", 72), TCP_ROW.format(8002, "0A", 73)]
        ),
        "proc/net/unix": f"{UNIX_HEAD}\n0: 2 0 00010000 1 1 74 /run/a b\n0: 2 0 00010000 1 1 75\n0: 3 0 00000000 1 3 76 /run/accepted\n",
    }
    root = write(texts)
    (root / "proc/12/fd").mkdir(parents=True)
    (root / "proc/12/fd/3").symlink_to("socket:[73]")
    (root / "proc/12/fd/4").symlink_to("/dev/null")
    (root / "proc/13").mkdir()
    assert set(read_listeners(root)) == {(8000, None), (8002, 12), ("/run/a b", None)}


def test_a_system_without_proc_has_no_listeners(tmp_path: pathlib.Path):
    assert read_listeners(tmp_path) == []


def test_a_socket_has_all_its_processes_but_what_started_perfkit_only_where_no_other_has_it(write):
    """PID 1 and the shell behind perfkit opened sockets for the servers 12, and 13, which 12 has forked; others are theirs alone."""
    own, shell = os.getpid(), 7
    opened = {1: (71, 73), shell: (72, 74), own: (75,), 12: (71, 72, 71), 13: (71,)}
    ports = {8001: 71, 8002: 72, 8003: 73, 8004: 74, 8005: 75}
    status = {f"proc/{pid}/stat": f"{pid} (x) S {parent} {'0 ' * 40}" for pid, parent in ((own, shell), (shell, 1), (1, 0))}
    root = write(status | {"proc/net/tcp": "\n".join([TCP_HEAD, *(TCP_ROW.format(port, "0A", inode) for port, inode in ports.items())])})
    for pid, inodes in opened.items():
        (root / f"proc/{pid}/fd").mkdir(parents=True)
        for number, inode in enumerate(inodes):
            (root / f"proc/{pid}/fd/{number}").symlink_to(f"socket:[{inode}]")
    assert read_listeners(root) == [(8001, 12), (8001, 13), (8002, 12), (8003, 1), (8004, shell), (8005, own)]


def test_a_path_of_any_bytes_hides_no_other_socket(write):
    root = write({"proc/net/unix": ""})
    rows = [UNIX_HEAD.encode(), b"0: 2 0 00010000 1 1 74 @\xff\xe4\nx", b"0: 2 0 00010000 1 1 75 /run/b", b""]
    (root / "proc/net/unix").write_bytes(b"\n".join(rows))
    assert read_listeners(root) == [(os.fsdecode(b"@\xff\xe4"), None), ("/run/b", None)]


def test_processes_that_may_not_be_listed_are_none(write, monkeypatch):
    def refuse(_):
        raise PermissionError

    root = write({"proc/net/tcp": f"{TCP_HEAD}\n{TCP_ROW.format(8000, '0A', 71)}"})
    monkeypatch.setattr(pathlib.Path, "iterdir", refuse)
    assert read_listeners(root) == [(8000, None)]
