"""However a gate ends, each output is written, and names the arm, the phase, the server's exit code or signal, and the last line of its log."""

import html.parser
import json
import math
import pathlib
import re
import shlex
import signal
import sys
from xml.etree import ElementTree

import pytest
import yaml

from perfkit.gate.arm import parse_arm
from perfkit.gate.folder import FixedSettings, GateFolder, GateManifest, read_verdict
from perfkit.gate.paired import fewest_pairs
from perfkit.gate.paired_gate import GateRequest
from perfkit.scenario.file import read_scenario
from tests.closed_schema import validator_of
from tests.conditions import until_ended, wait_until
from tests.simulated_pairs import make_pairs

PYTHON = shlex.quote(sys.executable)
# starts without the modules of the standard library, in milliseconds
LISTENS_ELSEWHERE = (
    "import _socket; s = _socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print(s.getsockname()[1], flush=True); s._accept()"
)
FILES = ("junit", "markdown", "html")


class Page(html.parser.HTMLParser):
    """The text of a page; every element but the void ones must be closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text = list[str](), list[str]()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "br", "img", "input", "hr", "path", "rect", "line", "circle", "use"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def scenario(tmp_path):
    return write_scenario(tmp_path / "endings.yaml", requests=10)


def write_scenario(path, **window):
    load = {"closed": {"concurrency": 1, "think_time": "1ms"}}
    path.write_text(yaml.safe_dump({"target": {"model": "m"}, "load": load, "measure": {"warmup": "0s", **window}}))
    return path


@pytest.fixture
def serve(tmp_path):
    """The arm of a server, with options of `tests.v2_process`."""
    return lambda options="": f"cmd:{PYTHON} -m tests.v2_process {{port}} {shlex.quote(str(tmp_path / 'pids'))} {options}".strip()


@pytest.fixture
def arguments(tmp_path, scenario):
    """The command line of a gate with all outputs."""

    def make(baseline, candidate, *options):
        outputs = [word for name in FILES for word in (f"--{name}", tmp_path / name)]
        return ["gate", scenario, "--baseline", baseline, "--candidate", candidate, "--out", tmp_path / "out", *outputs, *options]

    return make


@pytest.fixture
def environ(tmp_path):
    return {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}


def begin(scenario, place, pairs, targets):
    """Leaves the folder of a gate that was interrupted after these pairs."""
    loaded = read_scenario(scenario)
    baseline, candidate = (parse_arm("", target, loaded.scenario) for target in targets)
    request = GateRequest(loaded, baseline, candidate)
    folder = GateFolder(place, GateManifest(inputs=request.inputs, seed=1, started_at="2026-01-02T03:04:05.678+00:00"))
    folder.fix(FixedSettings(warmup_ns=0, window_ns=loaded.scenario.measure.duration_ns))
    for pair in pairs:
        folder.add(pair)


def checked(folder, texts, *, is_killed=False):
    """The failure of a gate, once every output was checked for it and for these texts."""
    suites = ElementTree.parse(folder / "junit")  # noqa: S314 - what perfkit has just written
    (error,) = suites.iterfind(".//testcase/error")
    shown = {
        "JUnit": f"{error.get('message')}\n{error.text}",
        "Markdown": (folder / "markdown").read_text().replace("\\", ""),
        "HTML": "".join(Page((folder / "html").read_text()).text),
        "verdict.json": (folder / "out.partial" / "verdict.json").read_text(),
        **({} if is_killed else {"summary": (folder / "summary").read_text().replace("\\", "")}),
    }
    for name, output in shown.items():
        for text in texts:
            assert text in output, f"{name} lacks {text}: {output}"
    verdict = read_verdict(folder / "out.partial")
    assert verdict.kind == "error"
    validator_of("verdict").validate(verdict.document())
    facts = {one.get("name"): one.get("value") for one in suites.iterfind(".//property")}
    assert facts.items() >= verdict.failure.facts.items()
    return verdict.failure


def annotation(stdout):
    """The title and message of the one error."""
    (found,) = re.findall(r"^::error title=(.*?)::(.*)$", stdout, re.MULTILINE)
    return found


def test_a_server_that_crashes_at_its_start_is_named_with_its_exit_code_and_last_line(perfkit, tmp_path, arguments, serve, environ):
    crash = "cmd:sh -c 'echo loading; echo no GPU was found >&2; exit 3' {port}"
    finished = perfkit.run(*arguments(crash, serve()), environ=environ)
    assert finished.code == 6
    failure = checked(tmp_path, ["The baseline failed in the trial", "ended with exit code 3 before it was ready", "no GPU was found"])
    assert (failure.cause, failure.arm, failure.phase, failure.exit_code, failure.signal) == ("server", "baseline", "trial", 3, "")
    assert failure.last_lines == ("loading", "no GPU was found")
    log = pathlib.Path(failure.log)
    assert log.parent == tmp_path / "out.partial" / "runs"
    assert log.read_text() == "loading\nno GPU was found\n"
    title, message = annotation(finished.stdout)
    assert title == "perfkit gate endings%3A error"
    assert message.startswith("The baseline failed in the trial: `sh -c ")
    assert message.endswith("ended with exit code 3 before it was ready. Its last line: no GPU was found")
    assert "ERROR: The baseline failed in the trial" in finished.stdout
    assert re.search(r"status: error: The baseline failed .* before it was ready \(0 pairs; exit code 6\)", finished.stderr)


def test_a_server_that_a_signal_ends_in_the_trial_is_named_with_it(perfkit, tmp_path, arguments, serve, environ):
    finished = perfkit.run(*arguments(serve(), serve(f"--ends-at 5 --by-signal {int(signal.SIGSEGV)}")), environ=environ)
    assert finished.code == 6, finished.stderr
    failure = checked(tmp_path, ["The candidate failed in the trial", "ended with signal 11 (SIGSEGV)", "no memory left"])
    assert (failure.arm, failure.exit_code, failure.signal, failure.last_lines) == ("candidate", None, "SIGSEGV", ("no memory left",))


def test_a_server_that_crashes_in_a_pair_keeps_the_pairs_and_the_gate_continues(perfkit, tmp_path, scenario, arguments, serve, environ):
    targets = (serve(), serve("--ends-at 5"))
    begin(scenario, tmp_path / "out", make_pairs(2), targets)
    finished = perfkit.run(*arguments(*targets, "--format", "json"), environ=environ)
    assert finished.code == 6, finished.stderr
    failure = checked(tmp_path, ["The candidate failed in pair 3", "ended with exit code 7", "no memory left", "2 pairs measured so far"])
    assert (failure.arm, failure.phase, failure.exit_code) == ("candidate", "pair 3", 7)
    assert json.loads(finished.stdout) == json.loads((tmp_path / "out.partial" / "verdict.json").read_text())
    assert annotation(finished.stderr)[1].endswith("Its last line: no memory left")
    assert len(json.loads((tmp_path / "out.partial" / "pairs.json").read_text())) == 2
    again = perfkit.run(*arguments(*targets), environ=environ)
    assert "continuing after 2 completed pairs" in again.stderr


def test_a_server_that_is_never_ready_is_named_with_what_was_waited_for(perfkit, tmp_path, arguments, environ):
    silent = "cmd:sh -c 'echo loading the model; exec sleep 600' {port}"
    finished = perfkit.run(*arguments(silent, silent, "--ready-timeout", "1s"), environ=environ)
    assert finished.code == 6
    texts = ["The baseline failed in the trial", "was not ready within 1s (--ready-timeout): http://127.0.0.1:", "loading the model"]
    failure = checked(tmp_path, [*texts, "its processes listen on no TCP port"])
    assert (failure.exit_code, failure.signal, failure.last_lines) == (None, "", ("loading the model",))


def test_a_server_at_another_port_is_told_where_it_listens(perfkit, tmp_path, arguments, environ):
    elsewhere = f'cmd:{PYTHON} -I -S -c "{LISTENS_ELSEWHERE}" {{port}}'
    finished = perfkit.run(*arguments(elsewhere, elsewhere, "--ready-timeout", "3s"), environ=environ)
    assert finished.code == 6
    failure = checked(tmp_path, ["The baseline failed", "the server must take the port that {port} in its command becomes"])
    assert f"; its processes listen on port {failure.last_lines[0]}: " in failure.reason


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_gate_says_where_and_by_which_signal(perfkit, tmp_path, scenario, arguments, serve, environ, number):
    begin(write_scenario(scenario, duration="1h"), tmp_path / "out", make_pairs(2), (serve(), serve()))
    running = perfkit.start(*arguments(serve(), serve()), environ=environ)
    running.wait_for_line("pair 3")
    running.signal(number)
    finished = running.finish()
    assert finished.code == 128 + number, finished.stderr
    failure = checked(tmp_path, ["In pair 3, ", f"perfkit was interrupted by {number.name}", "2 pairs measured so far"])
    assert (failure.cause, failure.signal, failure.exit_code) == ("interrupted", number.name, 128 + number)
    assert failure.arm in ("baseline", "candidate")
    assert f"perfkit was interrupted by {number.name}" in annotation(finished.stdout)[1]


def test_a_killed_gate_leaves_how_far_it_came(perfkit, tmp_path, scenario, arguments, serve, environ):
    begin(write_scenario(scenario, duration="1h"), tmp_path / "out", make_pairs(2), (serve(), serve()))
    running = perfkit.start(*arguments(serve(), serve()), environ=environ)
    running.wait_for_line("pair 3")
    wait_until((tmp_path / "pids").exists)  # a run has started its server
    processes = running.descendants()
    running.signal(signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    failure = checked(tmp_path, ["In pair 3, ", "the gate has not finished: 2 pairs so far", ".server.log"], is_killed=True)
    assert failure.cause == "unfinished"
    until_ended(processes)


def test_a_usage_error_is_in_every_output_that_was_asked_for(perfkit, tmp_path, arguments, scenario, environ):
    scenario.write_text("target: {modell: m}\n")
    finished = perfkit.run(*arguments("http://127.0.0.1:1", "http://user:secret@127.0.0.1:2", "--format", "json"), environ=environ)
    assert finished.code == 2
    (error,) = ElementTree.parse(tmp_path / "junit").iterfind(".//testcase/error")  # noqa: S314 - what perfkit has just written
    assert "unknown key" in error.get("message", "")
    for name in ("markdown", "html", "summary"):
        assert "unknown key" in (tmp_path / name).read_text()
    document = json.loads(finished.stdout)
    assert (document["kind"], document["failure"]["cause"], document["candidate"]) == ("error", "usage", "http://<redacted>@127.0.0.1:2")
    assert finished.stderr.count("unknown key") == 2, "the annotation, and the message"
    assert not (tmp_path / "out.partial").exists()


def test_a_time_that_is_too_short_by_the_scenario_is_refused_before_anything_is_asked(perfkit, tmp_path, environ):
    scenario = write_scenario(tmp_path / "endings.yaml", duration="200ms")
    nobody = ["--baseline", "http://127.0.0.1:1", "--candidate", "http://127.0.0.1:2"]
    finished = perfkit.run("gate", scenario, *nobody, "--time", "3s", "--format", "json", "--junit", tmp_path / "junit", environ=environ)
    assert finished.code == 2
    assert "--time 3s: too short" in finished.stderr
    assert "or lessen measure.duration" in finished.stderr
    assert "--time" in (tmp_path / "junit").read_text()
    document = json.loads(finished.stdout)
    (asked,) = re.findall(r"give at least (\d+[sm])", document["failure"]["reason"])
    words = shlex.split(document["next_steps"][0]["command"])
    assert words[words.index("--time") + 1] == asked


def test_a_time_that_is_too_short_for_the_servers_starts_is_refused_after_the_first_with_the_command_with_enough(
    perfkit, tmp_path, serve, environ
):
    scenario = write_scenario(tmp_path / "endings.yaml", duration="200ms")
    scenario.write_text(f"{scenario.read_text()}gate: {{metrics: [throughput]}}\n")
    # all of it is needed without the starts: 4 x 2 windows of the trial, 2 for each pair, 5 s for the verdict
    least_s = 8 * 0.2 + 2 * fewest_pairs(1) * 0.2 + 5
    given = ["gate", str(scenario), "--baseline", serve(), "--candidate", serve(), "--out", str(tmp_path / "out")]
    finished = perfkit.run(*given, "--time", f"{math.ceil(1000 * least_s)}ms", environ=environ)
    assert finished.code == 2, finished.stderr
    assert [line for line in finished.stderr.splitlines() if line.startswith("trial: ")] == [f"trial: baseline, {serve()}"]
    verdict = read_verdict(tmp_path / "out.partial")
    assert "for the start of the server" in verdict.failure.reason
    (asked,) = re.findall(r"give at least (\d+[sm])", verdict.failure.reason)
    (step,) = verdict.next_steps
    words = shlex.split(step.command)
    assert words[:3] == ["perfkit", "gate", str(scenario)]
    assert dict(zip(words[3::2], words[4::2], strict=True)) == {
        "--baseline": serve(), "--candidate": serve(), "--time": asked, "--out": str(tmp_path / "out")
    }  # fmt: skip


def test_a_stored_gate_that_cannot_read_its_results_says_so_in_every_output(perfkit, tmp_path, environ):
    outputs = [word for name in FILES for word in (f"--{name}", tmp_path / name)]
    finished = perfkit.run("gate", "--baseline", tmp_path / "none.json", "--candidate", tmp_path / "none", *outputs, environ=environ)
    assert finished.code == 2
    for name in FILES:
        assert "none.json" in (tmp_path / name).read_text()


def test_a_bug_is_told_in_every_output(perfkit, tmp_path, arguments, serve, environ, monkeypatch):
    async def fail(*_, **__):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("perfkit.gate.paired_gate.run_trial", fail)
    finished = perfkit.run(*arguments(serve(), serve()), environ=environ)
    assert finished.code == 70
    assert "this is a bug in perfkit" in finished.stderr
    assert checked(tmp_path, ["ZeroDivisionError: division by zero"]).cause == "internal"


def test_a_verdict_that_cannot_be_written_stays_a_verdict(perfkit, tmp_path, scenario, arguments, serve, environ):
    begin(scenario, tmp_path / "out", make_pairs(5, valid=False, codes=["generator_bound"]), (serve(), serve()))
    finished = perfkit.run(*arguments(serve(), serve(), "--junit", "/dev/full"), environ=environ)
    assert finished.code == 2
    assert "--junit /dev/full: cannot be written" in finished.stderr
    assert read_verdict(tmp_path / "out").kind == "invalid"
