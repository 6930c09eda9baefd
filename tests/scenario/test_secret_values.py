"""Secrets from files and commands: their values in headers, what cannot be one, and when they are read again."""

import base64
import shlex
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.errors import ScenarioError
from perfkit.scenario import secret_values
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.target import Target


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(secret_values, "_read", {})


def resolve(folder, secrets, header="Bearer ${TOKEN}", url="http://h"):
    return resolve_address(
        Target.model_validate({"model": "m", "url": url, "headers": {"authorization": header} if header else {}, "secrets": secrets}),
        url,
        folder,
        {"TOKEN": "of the environment"},
    )


def python(code):
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), st.sampled_from(["", "\n", " \r\n"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_text_of_a_file_is_the_value_and_a_secret(tmp_path, monkeypatch, value, end):
    monkeypatch.setattr(secret_values, "_read", {})
    (tmp_path / "token").write_text(value + end, newline="")
    address = resolve(tmp_path, {"TOKEN": {"file": "token"}})
    assert address.headers == {"authorization": f"Bearer {value}"}
    assert value in address.secrets


def test_a_commands_output_is_the_value(tmp_path):
    (tmp_path / "t").write_text("of the folder")
    assert resolve(tmp_path, {"TOKEN": {"command": python("print(open('t').read())")}}).headers == {"authorization": "Bearer of the folder"}


def test_the_credentials_of_a_url_take_secrets_too(tmp_path):
    (tmp_path / "token").write_text("p")
    address = resolve(tmp_path, {"TOKEN": {"file": "token"}}, header="", url="http://u:${TOKEN}@h")
    assert address.headers == {"Authorization": f"Basic {base64.b64encode(b'u:p').decode()}"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"file": "none"}, "none cannot be read: No such file or directory"),
        ({"file": "empty"}, "expected a line of ASCII, found nothing"),
        ({"file": "lines"}, "expected a line of ASCII, found something else"),
        ({"command": "no-such-program-here"}, "`no-such-program-here` cannot be run: No such file or directory"),
        ({"command": python("print('s3cret' * 100_000)")}, "has written more than 65,536 bytes"),
        ({"command": python("import sys; print('s3cret'); sys.exit('s3cret')")}, "ended with status 1: run it by hand to see why"),
    ],
)
def test_what_cannot_be_a_value_is_said_without_what_was_written(tmp_path, source, message):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "lines").write_text("s3cret\ns3cret\n")
    with pytest.raises(ScenarioError) as caught:
        resolve(tmp_path, {"TOKEN": source})
    assert str(caught.value).startswith("target.secrets.TOKEN: ")
    assert str(caught.value).endswith(message)
    assert "s3cret" not in str(caught.value).replace(source.get("command", ""), "")


def test_a_value_is_read_again_only_when_it_is_old(tmp_path):
    token, seen = tmp_path / "token", []
    for every in ("1h", "1ns"):
        for value in ("a", "b"):
            token.write_text(value)
            seen.append(resolve(tmp_path, {"TOKEN": {"file": "token", "every": every}}).headers["authorization"])
    assert seen == ["Bearer a", "Bearer a", "Bearer a", "Bearer b"]


def test_a_secret_that_cannot_be_read_again_keeps_its_value_and_the_others_are_renewed(tmp_path):
    secrets = {name: {"file": name, "every": "1ns"} for name in ("A", "TOKEN")}
    target = Target.model_validate({"model": "m", "url": "http://h", "headers": {"a": "${A}", "b": "${TOKEN}"}, "secrets": secrets})
    for name in secrets:
        (tmp_path / name).write_text(f"{name} old")
    resolve_address(target, "http://h", tmp_path, {})
    (tmp_path / "A").unlink()
    (tmp_path / "TOKEN").write_text("new")
    rereading = secret_values.SecretRereading()
    assert resolve_address(target, "http://h", tmp_path, {}, rereading).headers == {"a": "A old", "b": "new"}
    missing = f"target.secrets.A: {tmp_path / 'A'} cannot be read: No such file or directory"
    assert [*rereading.failures.values()] == [missing]
    with pytest.raises(ScenarioError) as caught:  # of the next run
        resolve_address(target, "http://h", tmp_path, {})
    assert str(caught.value) == missing


@pytest.mark.parametrize("source", [{}, {"file": "a", "command": "b"}, {"command": "a | b"}, {"file": "a", "every": "0s"}, None])
def test_a_source_is_a_file_or_a_command(source):
    with pytest.raises(ValueError, match="secrets"):
        Target.model_validate({"model": "m", "url": "http://h", "secrets": {"a b": {"file": "a"}} if source is None else {"TOKEN": source}})
