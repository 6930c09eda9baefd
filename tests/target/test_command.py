"""Commands that start a server: their words and the places of their ports."""

import re

import pytest

from perfkit.target.command import check_ports, command_words, with_ports

TRITON = "tritonserver --http-port={http_port} --grpc-port={grpc_port}"


def test_a_command_is_split_like_a_shell_does_without_running_one():
    assert command_words("serve --name 'a b' --port {port} $HOME") == ["serve", "--name", "a b", "--port", "{port}", "$HOME"]


@pytest.mark.parametrize(
    ("command", "reason"), [("", "expected a program and its arguments"), ("serve 'a", 'No closing quotation in "serve \'a"')]
)
def test_a_command_without_words_is_refused(command, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        command_words(command)


@pytest.mark.parametrize(
    ("command", "protocols", "filled"),
    [
        ("serve {port}", ["http"], "serve 8000"),
        ("serve --grpc {port} --admin {http_port}", ["grpc"], "serve --grpc 8001 --admin 8000"),
        (TRITON, ["http"], "tritonserver --http-port=8000 --grpc-port=8001"),
        (TRITON, ["http", "grpc"], "tritonserver --http-port=8000 --grpc-port=8001"),
        ("""serve --options '{"port": {port}}'""", ["http"], """serve --options '{"port": 8000}'"""),
    ],
)
def test_ports_are_put_where_the_command_takes_them(command, protocols, filled):
    check_ports(command, protocols)
    assert with_ports(command, protocols, {"http": 8000, "grpc": 8001}) == filled


@pytest.mark.parametrize(
    ("command", "protocols", "reason"),
    [
        ("serve", ["http"], "the server's address is unknown: write {port} in the command where the server takes its port, or give"),
        ("serve", ["http", "grpc"], "unknown: write {http_port} and {grpc_port} in the command where the server takes its ports, or give"),
        (
            "serve {port}",
            ["http", "grpc"],
            "write {http_port} and {grpc_port} in the command where the server takes its ports for http and grpc",
        ),
        ("serve {http_port}", ["grpc"], "write {grpc_port} in the command where the server takes its ports for grpc"),
        ("serve {http_port}", ["http", "grpc"], "write {grpc_port} in the command where the server takes its ports for http and grpc"),
    ],
)
def test_a_port_that_no_one_would_know_is_refused(command, protocols, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        check_ports(command, protocols)
