"""`perfkit tune` on ensembles, on model repositories that it edits, and with load over gRPC, from outside."""

import json
import pathlib
import shlex
import signal
import sys

import pytest

from perfkit.cli.main import main
from tests.bundled_server import bundled_server
from tests.cli.tune_target import CONFIG, Triton
from tests.json_server import serving
from tests.undisturbed import undisturbed_tunes

ROOT = pathlib.Path(__file__).parents[2]
CODES = {"better": 0, "kept": 0, "undecided": 3}
STEPS = [{"model_name": "resize", "model_version": -1}, {"model_name": "classify.v1", "model_version": -1}]
MODELS = {
    "pipeline": {"name": "pipeline", "platform": "ensemble", "max_batch_size": 0, "ensemble_scheduling": {"step": STEPS}},
    "resize": {**CONFIG, "name": "resize"},
    "classify.v1": {**CONFIG, "name": "classify.v1"},
}
SERVER = f"""
import pathlib, re, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.cli.tune_target import CONFIG, Triton
from tests.json_server import JsonServer
repository, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
count = int(re.search(r"count: (\\d+)", (repository / "m" / "config.pbtxt").read_text())[1])
if count == 16:
    print('E1129 01:47:39.1 7 cuda.cc:3] "no driver"', "E1129 01:47:39.2 7 lifecycle.cc:654] failed to load 'm': memory", "ended", sep="\\n")
    sys.exit(1)
weights = repository / "m" / "1" / "weights"
assert weights.stat().st_nlink > 1 or weights.is_symlink(), "a large file is not copied"
(repository / "m" / "1" / "compiled").write_text("by the server")
triton = Triton({{"m": {{**CONFIG, "instance_group": [{{"kind": "KIND_CPU", "count": count}}]}}}})
JsonServer(("127.0.0.1", port), triton.handler).serve_forever()
"""


@pytest.fixture
def ensemble():
    server = Triton(MODELS, slow="classify.v1")
    with serving(server.handler) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server


def options(tmp_path, *more, time="12s"):
    settings = ["--set", "measure.warmup=20ms", "--set", "telemetry=false"]
    return ["tune", *more, "-c", "2,8", "--time", time, "--indifference", "50%", "--out", str(tmp_path / "tune"), *settings]


def tuned(tmp_path, arguments):
    """The outcome of a tune that ends by itself, with the exit code of its kind."""
    with undisturbed_tunes():
        code = main(arguments)
    outcome = json.loads((tmp_path / "tune" / "tune.json").read_text())
    assert code == CODES[outcome["kind"]]
    return outcome


def test_an_ensemble_is_tuned_by_its_members_which_are_put_back(ensemble, tmp_path):
    before = dict(ensemble.configs)
    spaces = ["--space", "resize.instance_group.count=3", "--space", "classify.v1.instance_group.count=2,8"]
    outcome = tuned(tmp_path, options(tmp_path, ensemble.url, "-m", "pipeline", *spaces, time="16s"))
    assert ensemble.configs == before
    assert len(outcome["rows"]) == 3
    assert outcome["rows"][outcome["best"]]["values"]["classify.v1.instance_group.count"] == "8"
    assert "count: 8" in (tmp_path / "tune" / "best.classify.v1.config.pbtxt").read_text()
    assert '+      "count": 3' in (tmp_path / "tune" / "best.resize.diff").read_text()
    assert list((tmp_path / "state").rglob("*.json")) == []


def test_the_default_space_of_an_ensemble_has_the_keys_of_its_members(ensemble, capsys):
    assert main(["tune", ensemble.url, "-m", "pipeline", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "resize.instance_group.count 2, classify.v1.instance_group.count 2  (present)" in shown
    assert "resize.instance_group.count 1, classify.v1.instance_group.count 1\n" in shown


def test_a_key_without_a_member_is_refused_with_their_names(ensemble, capsys):
    assert main(["tune", ensemble.url, "-m", "pipeline", "--space", "instance_group.count=1,2"]) == 2
    assert "by its members (resize, classify.v1)" in capsys.readouterr().err


def test_a_killed_tune_of_an_ensemble_is_told_at_every_model_and_puts_all_back(perfkit, ensemble, tmp_path, capsys):
    ensemble.reads_repository = False
    before = dict(ensemble.configs)
    space = [word for member in ("resize", "classify.v1") for word in ("--space", f"{member}.instance_group.count=8")]
    running = perfkit.start(*options(tmp_path, ensemble.url, "-m", "pipeline", *space, time="60s"), is_undisturbed=True)
    running.wait_for_line("round 2")

    def kill(_):
        if all(ensemble.configs[model] != before[model] for model in ("resize", "classify.v1")):
            running.signal(signal.SIGKILL)

    ensemble.on_load = kill
    assert running.finish().code == -signal.SIGKILL
    ensemble.on_load = lambda _: None
    assert ensemble.configs != before
    for model in MODELS:
        assert main(["tune", ensemble.url, "-m", model, "--dry-run"]) == 2
        assert f"perfkit tune --restore {tmp_path / 'tune'}" in capsys.readouterr().err
    assert main(["tune", "--restore", str(tmp_path / "tune")]) == 0
    assert ensemble.configs == before
    assert main(["tune", ensemble.url, "-m", "resize", "--dry-run"]) == 0


def test_load_goes_over_grpc_while_the_configuration_is_changed_over_http(tmp_path):
    server = Triton({"synthetic": {**CONFIG, "name": "synthetic"}}, slow="synthetic")
    before = dict(server.configs)
    with serving(server.handler) as port, bundled_server("--model", "synthetic", "--synthetic", "service=constant:2ms") as answering:
        targets = [f"http://127.0.0.1:{port}", answering.grpc, "-m", "synthetic", "--protocol", "grpc", "--shape", "INPUT0=4"]
        outcome = tuned(tmp_path, options(tmp_path, *targets, "--space", "instance_group.count=2,8", time="60s"))
    assert [row["windows"] > 0 for row in outcome["rows"]] == [True, True], "the fake server over HTTP lacks the model's inputs"
    assert len(server.loads) > 2
    assert server.configs == before


def test_a_grpc_url_alone_is_refused_with_what_is_missing(capsys):
    assert main(["tune", "grpc://127.0.0.1:1", "-m", "m"]) == 2
    assert "give the http:// URL of one server, beside its grpc:// URL" in capsys.readouterr().err


@pytest.mark.parametrize(("variants", "is_noted"), [(4, True), (5_000, False)])
def test_a_response_cache_is_noted_where_the_requests_repeat(tmp_path, variants, is_noted):
    server = Triton()
    with serving(server.handler) as port:
        target = [f"http://127.0.0.1:{port}", "-m", "m", "--space", "response_cache.enable=true", "--set", f"workload.variants={variants}"]
        outcome = tuned(tmp_path, options(tmp_path, *target, time="60s"))
    assert [row["windows"] > 0 for row in outcome["rows"]] == [True, True]
    assert any(note.startswith("response_cache.enable: ") for note in outcome["notes"]) == is_noted


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "the models"
    (folder / "m" / "1").mkdir(parents=True)
    (folder / "m" / "config.pbtxt").write_text('name: "m"\ninstance_group [ { kind: KIND_CPU count: 2 } ]\n')
    (folder / "m" / "1" / "weights").write_bytes(b"w" * (2**20 + 1))
    return folder


def command(tmp_path, *more):
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    return f"cmd:{shlex.quote(sys.executable)} {shlex.quote(str(server))} {' '.join(['{repository}', '{port}', *more])}"


def contents(folder):
    return {str(one): (one.stat().st_mode, one.stat().st_mtime_ns, one.read_bytes() if one.is_file() else b"") for one in folder.rglob("*")}


def test_a_repository_is_edited_in_copies_and_stays_as_it_is(tmp_path, repository):
    before = contents(repository)
    target = [command(tmp_path), "-m", "m", "--repository", str(repository), "--space", "instance_group.count=2,8,16"]
    outcome = tuned(tmp_path, options(tmp_path, *target, time="20s"))
    assert contents(repository) == before
    assert {row["values"]["instance_group.count"]: row["state"] for row in outcome["rows"]}["16"] == "refused"
    assert outcome["rows"][2]["reason"] == "failed to load 'm': memory"
    assert outcome["rows"][outcome["best"]]["values"] == {"instance_group.count": "8"}
    assert "count: 8" in (tmp_path / "tune" / "best.config.pbtxt").read_text()
    assert '+      "count": 8' in (tmp_path / "tune" / "best.diff").read_text()
    assert not (tmp_path / "tune" / "best.json").exists()
    assert list((tmp_path / "tune").rglob("weights")) == []


def test_keys_of_the_configuration_and_places_of_the_command_make_one_space(tmp_path, repository, capsys):
    target = [command(tmp_path, "{threads}"), "-m", "m", "--repository", str(repository)]
    spaces = ["--space", "instance_group.count=2,4", "--space", "threads=1,3"]
    assert main(options(tmp_path, *target, *spaces, "--dry-run", time="60s")) == 0
    shown = capsys.readouterr().out
    assert "instance_group.count 2, threads 1  (present)" in shown
    assert "4 configurations" in shown
    assert main(options(tmp_path, *target, "--space", "instance_group.count=2,4")) == 2
    assert "{threads} has no values" in capsys.readouterr().err


def test_a_command_that_does_not_take_the_repository_is_refused(repository, capsys):
    assert main(["tune", "cmd:serve --repository /models {port}", "-m", "m", "--repository", str(repository)]) == 2
    assert "write {repository} in it" in capsys.readouterr().err
    arguments = ["tune", "cmd:serve {repository} {grpc_port}", "-m", "m", "--protocol", "grpc", "--repository", str(repository)]
    assert main(arguments) == 2
    assert "write {http_port} and {grpc_port} in it" in capsys.readouterr().err
