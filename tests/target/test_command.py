"""Commands that start a server: their words and the places of their ports."""

import re
import shlex
import subprocess

import pytest

from perfkit.target.command import ShellSyntaxError, check_ports, command_words, with_ports

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
    ("command", "what", "instead"),
    [
        ("FOO=1 serve --port {port}", "FOO= before a program is for a shell", "env FOO=1 serve --port {port}"),
        ("FOO='a b' BAR=2 serve", "FOO= before a program", "env FOO='a b' BAR=2 serve"),
        ("cd x && serve {port}", "&& is for a shell", "sh -c 'cd x && exec serve {port}'"),
        ("cd x; FOO=1 serve", "; is for a shell", "sh -c 'cd x; exec env FOO=1 serve'"),
        ("serve > log 2>&1", "> is for a shell", "sh -c 'exec serve > log 2>&1'"),
        ("serve 2>/dev/null", "2>/dev/null is for a shell", "sh -c 'exec serve 2>/dev/null'"),
        ("a&&serve", "&& is for a shell", "sh -c 'a&&serve'"),
        ("serve | tee log", "| is for a shell", "sh -c 'serve | tee log'"),
        ("serve 'a b' &", "& is for a shell", """sh -c 'serve '"'"'a b'"'"' &'"""),
        ("cd /srv", "cd is a command of the shell", "sh -c 'cd /srv'"),
    ],
)
def test_what_only_a_shell_understands_is_answered_with_what_works(command, what, instead):
    with pytest.raises(ShellSyntaxError) as caught:
        command_words(command)
    assert caught.value.what.startswith(what)
    assert caught.value.instead == instead
    assert command_words(instead) == shlex.split(instead), "which is accepted"


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'cd x && exec serve {port} > log'", "env FOO=1 serve", "serve '&&' \\;", "serve http://h/?a=1&b=2", "serve --env FOO=1 A=2",
        """serve --options '{"port": {port}, "a": ["<b>"]}'""", 'serve "a; b" ">"', "./cd x", "serve a\\&\\&b", "serve --filter=a|b",
    ],
)  # fmt: skip
def test_arguments_that_look_like_a_shells_are_arguments(command):
    assert command_words(command) == shlex.split(command)


@pytest.mark.parametrize(
    ("given", "said"), [("FOO=bar printenv FOO", "bar"), ("cd / && pwd", "/"), ("echo one > /dev/null; echo two", "two")]
)
def test_the_command_that_is_proposed_does_what_the_shell_would(given, said):
    with pytest.raises(ShellSyntaxError) as caught:
        command_words(given)
    assert subprocess.check_output(command_words(caught.value.instead), text=True).strip() == said


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
