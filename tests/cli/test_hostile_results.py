"""Results of untrusted origin through every command that reads them: their texts are shown, and never executed."""

import copy
import http.server
import io
import json
import re
import threading
from xml.etree import ElementTree

import pytest

from perfkit.cli.main import main
from tests.own_scripts import without_own_scripts
from tests.queue_results import Writer
from tests.result.conftest import POINT
from tests.stored_results import document, write, write_log

HOSTILE = "owned\x1b[31m\x1b]0;t\x07\n::error::a\n ::stop-commands::x\n##[error]x\u202e\u200b\x85\u2028<script>alert(1)</script>|`*$\\frac{$\r\x00"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\u2028]")
COMMANDS = re.compile(r"^\s*::|##\[", re.MULTILINE)
OURS = re.compile(r"^::(?:error|warning|notice) title=[^\n]*$", re.MULTILINE)
FIXED = {
    "schema",
    "protocol",
    "kind",
    "status",
    "started_at",
    "verdict",
    "source",
    "stage",
    "energy_source",
    "unit",
    "think_time",
    "outcome",
    "cause",
}
"""Keys whose texts are checked when a result is read."""


def infested(value, key=""):
    """The document with every text that may be anything replaced, and with keys of its free-form mappings."""
    if isinstance(value, dict):
        inner = {name: infested(one, name) for name, one in value.items()}
        return (
            {**inner, HOSTILE: HOSTILE, "x": [HOSTILE]}
            if key in ("scenario", "environment", "generator", "target") and "cpu_share" not in value
            else inner
        )
    if isinstance(value, list):
        return [infested(one, key) for one in value]
    return HOSTILE if isinstance(value, str) and key not in FIXED else value


def hostile_document(day, factor):
    made = document(started_at=f"2026-01-{day:02}T00:00:00.000+00:00", p50_ms=2.0 * factor)
    said = {name: copy.deepcopy(POINT[name]) for name in ("gpus", "metrics", "server")}
    for point in (*made["points"], *made["summary"]):
        point |= {**said, "warnings": [{"code": "x", "message": "m"}], "errors": {"rejected": ["busy"]}, "rejected_by_status": {"503": 0}}
        point["slo"] = {"verdict": "violated", "reason": "r"}
    return infested({**made, "overrides": ["a=b"], "status_reason": "r"})


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    for day, name in enumerate(("one", "two", "new"), 1):
        made = hostile_document(day, 1.2 if name == "new" else 1 + day / 1000)
        write_log(write(tmp_path / name, made), made)
    return tmp_path


def assert_harmless(texts):
    for name, text in texts.items():
        if not name.endswith(".json"):
            text = without_own_scripts(text)  # noqa: PLW2901 - what is perfkit's own is not foreign
            assert not CONTROLS.search(text), (name, CONTROLS.search(text))
            assert not COMMANDS.search(OURS.sub("", text) if name in ("stdout", "stderr") else text), name
            assert not re.search(r"(?<!\\)<script", text) or name in ("stdout", "stderr") or name.endswith(".csv"), name


def run(capsys, *arguments):
    code = main(arguments)
    said = capsys.readouterr()
    assert code != 70, said.err
    assert_harmless({"stdout": said.out, "stderr": said.err})
    return code, said.out


def written(folder):
    return {
        str(file): file.read_text("utf-8") for file in folder.rglob("*") if file.suffix in (".md", ".html", ".svg", ".csv", ".xml", ".json")
    }


def test_comparisons_gates_baselines_and_histories_show_hostile_texts_without_executing_them(place, capsys):
    for form in ("text", "markdown", "html"):
        code, out = run(capsys, "compare", "one", "new", "--format", form)
        assert code == 0
        assert "owned" in out
        assert form == "text" or not re.search(r"(?<!\\)<script", without_own_scripts(out))
    assert json.loads(run(capsys, "compare", "one", "new", "--format", "json")[1])["sides"][0]["commit"] == HOSTILE
    assert run(capsys, "baseline", "one", "two")[0] == 0
    (baseline,) = (place / "baselines").iterdir()  # a name such as ../../x stays inside
    gate = (
        "gate",
        "--baseline",
        str(baseline),
        "--candidate",
        "new",
        "--same-build",
        "--github",
        "on",
        "--junit",
        "g.xml",
        "--markdown",
        "g.md",
    )
    code, out = run(capsys, *gate)
    assert code in (1, 3)
    assert "owned" in out
    assert_harmless({name: (place / name).read_text() for name in ("g.xml", "g.md")})
    ElementTree.fromstring((place / "g.xml").read_text())  # noqa: S314 - written by perfkit itself
    for part in (("add", "one", "two", "new"), ("list",), ("steps",), ("plot",)):
        assert run(capsys, "history", *part)[0] == 0
    ElementTree.fromstring((place / "history.svg").read_text())  # noqa: S314 - written by perfkit itself
    assert_harmless(written(place))


def test_reports_show_hostile_texts_without_executing_them(place, capsys):
    assert run(capsys, "report", "new")[0] == 0
    files = written(place / "new")
    assert {"report.md", "report.html"} <= {name.rpartition("/")[2] for name in files}
    assert all("owned" in text for name, text in files.items() if name.endswith((".md", ".html")))
    assert_harmless(files)


def test_plans_show_hostile_texts_without_executing_them(place, capsys):
    folder = Writer(place)((20, 40, 60, 80, 110), overloaded_from=100)
    (folder / "checksums.sha256").unlink()
    made = json.loads((folder / "result.json").read_text())
    for point in (*made["points"], *made["summary"]):
        point["warnings"] = [{**one, "message": HOSTILE} for one in point["warnings"]]
        point["load"]["arrivals"] = HOSTILE
    made |= {"scenario": {**made["scenario"], "name": HOSTILE, "target": {"model": HOSTILE}, "server": {HOSTILE: HOSTILE}}}
    (folder / "result.json").write_text(json.dumps(made))
    assert run(capsys, "plan", f"a\x1b[1m={folder}", "--slo", "p99<200ms", "--demand", "500/s", "--out", "plan")[0] == 0
    assert_harmless(written(place / "plan"))


def test_a_scenarios_model_and_file_name_are_shown_without_executing_them(place, capsys):
    name = "\x1b[31m\n::error::x.yaml"
    scenario = {
        "name": "x",
        "target": {"url": "http://127.0.0.1:1", "model": HOSTILE.replace("\x00", "")},
        "load": {"closed": {"concurrency": 1}},
    }
    (place / name).write_text(json.dumps(scenario))
    run(capsys, "validate", name)
    assert run(capsys, "validate", f"missing{name}")[0] == 2
    assert run(capsys, "compare", name, "one")[0] == 2


def test_the_words_of_a_server_are_shown_without_executing_them(place, capsys):
    words = json.dumps({"error": HOSTILE}).encode()

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(400)
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        target = {"url": f"http://127.0.0.1:{server.server_address[1]}", "model": "m"}
        (place / "s.yaml").write_text(json.dumps({"name": "x", "target": target, "load": {"closed": {"concurrency": 1}}}))
        code = main(["run", "s.yaml"])
        server.shutdown()
        thread.join()
    said = capsys.readouterr()
    assert code == 6
    assert "owned" in said.err
    assert_harmless({"stdout": said.out, "stderr": said.err})


class Terminal(io.StringIO):
    """What a terminal is sent."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    "command",
    [("compare", "one", "new"), ("gate", "--baseline", "made.json", "--candidate", "new", "--same-build", "--github", "off")],
)
@pytest.mark.usefixtures("place")
def test_a_terminal_gets_our_own_styles_and_no_others(monkeypatch, command):
    assert main(["baseline", "one", "two", "--out", "made.json"]) == 0
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(command) in (0, 1, 3)
    shown = terminal.getvalue()
    assert "\x1b[1m" in shown
    assert r"\u001b[1m" not in shown
    assert r"owned\u001b[31m" in shown
    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m", "", shown))
    assert set(re.findall(r"\x1b\[[0-9;]*m", shown)) <= {f"\x1b[{style}m" for style in ("0", "1", "2", "32", "33", "1;31")}
