"""Results for other programs: the CSV of load points, and .hgrm files, read back by other means."""

import csv
import io
import json
import math
import pathlib
import re
import sys
import types
from typing import Any, Literal

import pytest
from PIL import Image
from pydantic import BaseModel, ValidationError

from perfkit.cli.main import main
from perfkit.recorder.histogram import percentile_distribution
from perfkit.report.chart import BLUE, VERMILLION
from perfkit.report.chart_rules import many_colour
from perfkit.report.figures_by_name import parameters_of
from perfkit.report.matplotlib_charts import draw
from perfkit.report.time_charts import time_group
from perfkit.report.timeline import read_timeline
from perfkit.report.wandb_export import log_runs
from perfkit.result.file import read_result
from perfkit.scenario.file import read_scenario, scenario_document
from perfkit.stats.buckets import BucketCounts
from tests import stored_results
from tests.report.conftest import Synthetic
from tests.report.subject_pages import sweep_page


@pytest.fixture
def folders(tmp_path):
    """Two results, of 500/s and of 480/s."""
    written = []
    for name, rate in (("one", 500.0), ("two", 480.0)):
        document = stored_results.document(throughput_per_s=rate)
        written.append(stored_results.write(tmp_path / name, document))
        stored_results.write_log(written[-1], document)
    return written


def test_the_csv_has_a_row_for_each_load_point_of_all_results(folders, tmp_path, capsys):
    assert main(["report", *map(str, folders), "--csv", str(tmp_path / "all.csv"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    text = (tmp_path / "all.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["result"], row["throughput_per_s"], row["p99_ns"], row["level"]) for row in rows] == [
        (str(folders[0]), "500.0", "6000000", "4"),
        (str(folders[1]), "480.0", "6000000", "4"),
    ]
    assert "repetition" not in rows[0]
    assert main(["report", *map(str, folders), "--csv", "-", "--quiet"]) == 0
    assert capsys.readouterr().out == text
    assert {path.name for path in folders[0].iterdir()} == {"result.json", "latency.hlog"}  # no report


def test_each_load_point_has_a_file_of_percentiles(folders, tmp_path, capsys):
    assert main(["report", str(folders[0]), "--hgrm", str(tmp_path / "h"), "--quiet"]) == 0
    (file,) = (tmp_path / "h").iterdir()
    assert file.name == "http-concurrency-4-service.hgrm"
    assert re.search(r"TotalCount     = +15000\.000\]", file.read_text())
    assert main(["report", *map(str, folders), "--hgrm", str(tmp_path / "both")]) == 0
    assert [path.parent.name for path in sorted((tmp_path / "both").glob("*/*.hgrm"))] == ["1", "2"]
    assert capsys.readouterr().out.count(".hgrm\n") == 2


INTERVALS: dict[str, Any] = {
    "throughput_interval_per_s": [490.0, 510.0],
    "intervals": {"p50": [1_900_000, 2_100_000], "p99": [5_500_000, None]},
}


@pytest.fixture
def with_intervals(tmp_path):
    """A result of a mix of two load points: a valid one with intervals, whose p99 has no upper end, and one that is not valid."""
    valid = stored_results.point(**INTERVALS)
    limited = stored_results.point(**INTERVALS, load={"kind": "closed", "concurrency": 8}, valid=False)
    return stored_results.write(tmp_path / "result", stored_results.document(points=[valid, limited]))


def test_benchers_json_has_the_figures_of_valid_load_points_with_the_known_ends(with_intervals, capsys):
    assert main(["report", str(with_intervals), "--bencher", "-", "--quiet"]) == 0
    benchmarks = json.loads(capsys.readouterr().out)
    assert list(benchmarks) == ["smoke: http, concurrency 4"]
    assert benchmarks["smoke: http, concurrency 4"] == {
        "throughput_per_s": {"value": 500.0, "lower_value": 490.0, "upper_value": 510.0},
        "p50_ns": {"value": 2_000_000, "lower_value": 1_900_000, "upper_value": 2_100_000},
        "p90_ns": {"value": 4_000_000},
        "p95_ns": {"value": 4_000_000},
        "p99_ns": {"value": 6_000_000, "lower_value": 5_500_000},
        "mean_ns": {"value": 2_000_000},
        "error_rate": {"value": 0.0},
    }


def test_benchmarks_of_several_results_have_the_names_of_their_folders(folders, tmp_path, capsys):
    assert main(["report", *map(str, folders), "--bencher", str(tmp_path / "b.json")]) == 0
    assert capsys.readouterr().out.endswith("b.json\n")
    names = list(json.loads((tmp_path / "b.json").read_text()))
    assert names == ["smoke/one: http, concurrency 4", "smoke/two: http, concurrency 4"]
    assert main(["report", str(folders[0]), str(folders[0]), "--bencher", "-"]) == 2
    assert "give results whose folders have different names" in capsys.readouterr().err


class PlayedClient:
    """MLflow's client, as far as an export uses it; holds what it was told. benchmarks/peers/exports.py uses the real one."""

    def __init__(self):
        self.experiments, self.runs = [], []

    def get_experiment_by_name(self, name):
        return types.SimpleNamespace(experiment_id="7") if name in self.experiments else None

    def create_experiment(self, name):
        self.experiments.append(name)
        return "7"

    def create_run(self, experiment_id, start_time, tags, run_name):
        assert experiment_id == "7"
        run = {"start": start_time, "tags": tags, "name": run_name, "params": {}, "metrics": {}, "artifacts": [], "status": "RUNNING"}
        self.runs.append(run)
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=str(len(self.runs) - 1)))

    def log_batch(self, run_id, metrics=(), params=()):
        assert len(params) <= 100
        assert len(metrics) <= 1000
        run = self.runs[int(run_id)]
        run["params"] |= dict(params)
        run["metrics"] |= {key: value for key, value, *_ in metrics}

    def log_artifact(self, run_id, path):
        self.runs[int(run_id)]["artifacts"].append(pathlib.Path(path).name)

    def set_terminated(self, run_id, status, end_time):
        run = self.runs[int(run_id)]
        run["status"], run["seconds"] = status, (end_time - run["start"]) / 1000


@pytest.fixture
def played_mlflow(monkeypatch):
    client = PlayedClient()
    modules: dict[str, dict[str, Any]] = {
        "mlflow": {"MlflowClient": lambda **_: client},
        "mlflow.entities": {"Metric": lambda *fields: fields, "Param": lambda *fields: fields},
        "mlflow.exceptions": {"MlflowException": type("MlflowException", (Exception,), {})},
    }
    for name, contents in modules.items():
        module = types.ModuleType(name)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"):
        monkeypatch.setenv(name, "1")  # an export sets them, where they are not set
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return client


def test_a_result_is_a_run_of_mlflow(with_intervals, played_mlflow, capsys):
    assert main(["report", str(with_intervals), "--mlflow", "http://127.0.0.1:5000"]) == 0
    assert "MLflow run 0 of the experiment perfkit" in capsys.readouterr().out
    (run,) = played_mlflow.runs
    assert (run["name"], run["status"], run["artifacts"]) == ("smoke", "FINISHED", ["result.json"])
    assert run["tags"] == {
        "mlflow.source.name": "perfkit",
        "mlflow.source.git.commit": "c0ffee" * 6,
        "mlflow.source.git.branch": "main",
        "perfkit.status": "complete",
    }
    assert run["params"]["target.model"] == "m"
    assert run["params"]["load.closed.concurrency"] == "[4]"
    assert run["params"]["workload.inputs"] == "{}"
    metrics = run["metrics"]
    assert metrics["http-concurrency-4/throughput_per_s_low"] == 490.0
    assert metrics["http-concurrency-4/throughput_per_s"] == 500.0
    assert metrics["http-concurrency-4/p99_ns_low"] == 5_500_000
    assert "http-concurrency-4/p99_ns_high" not in metrics
    assert (metrics["http-concurrency-4/valid"], metrics["http-concurrency-8/valid"]) == (1.0, 0.0)


@pytest.mark.parametrize(("status", "logged"), [("interrupted", "KILLED"), ("unsuccessful", "FAILED")])
def test_the_state_of_a_run_of_mlflow_is_that_of_the_result(tmp_path, played_mlflow, status, logged):
    document = {**stored_results.document(), "status": status, "status_reason": "for a reason"}
    assert main(["report", str(stored_results.write(tmp_path / "result", document)), "--mlflow", "http://127.0.0.1:5000", "--quiet"]) == 0
    assert played_mlflow.runs[0]["status"] == logged
    assert played_mlflow.runs[0]["tags"]["perfkit.status_reason"] == "for a reason"


def test_without_mlflows_client_the_extra_is_named(with_intervals, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert main(["report", str(with_intervals), "--mlflow", "http://127.0.0.1:5000", "--quiet"]) == 2
    assert "--mlflow needs MLflow's client: pip install '.[mlflow]'" in capsys.readouterr().err


WANDB_SETTINGS = {
    "console", "silent", "disable_git", "save_code", "init_timeout", "finish_timeout", "finish_timeout_raises", "x_disable_meta",
    "x_disable_stats", "x_save_requirements", "x_graphql_retry_max", "x_file_stream_retry_max", "x_file_transfer_retry_max",
}  # fmt: skip
"""Settings that wandb 0.27 and 0.31 know; both refuse other names."""


class ModeSettings(BaseModel):
    """One of the client's settings, as it declares them."""

    mode: Literal["online", "offline"]


def settings_error():
    """The client's error for WANDB_MODE=nonsense."""
    with pytest.raises(ValidationError) as raised:
        ModeSettings.model_validate({"mode": "nonsense"})
    return raised.value


class PlayedRun:
    """A run of the client of Weights & Biases, as far as an export uses it; holds what it was told. benchmarks/peers/exports.py uses the real one."""

    def __init__(self, client, options):
        self._client, self.options, self.id, self.figures, self.files, self.ended = client, options, "abc", {}, {}, None
        self.offline, self.disabled = client.mode == "offline", client.mode == "disabled"
        self.settings = types.SimpleNamespace(sync_dir="wandb/offline-run-abc")

    def log(self, figures):
        self.figures |= figures

    def log_artifact(self, artifact):
        self.files[artifact.name, artifact.type] = [pathlib.Path(one).name for one in artifact.files]

    def finish(self, exit_code):
        self._client.fail("finish")
        if self._client.fatal:
            self._client.told.warning(self._client.fatal)
        self.ended = exit_code


class PlayedWandb(types.ModuleType):
    """The client: the runs that were begun, the artifacts whose uploads were awaited, and the exit codes with which it was torn down."""

    Error = type("Error", (Exception,), {})

    def __init__(self):
        super().__init__("wandb")
        self.runs, self.awaited, self.torn_down, self.told = [], [], [], None
        self.mode, self.fatal = "online", ""
        self.failures: dict[str, BaseException] = {}

    def fail(self, call):
        if call in self.failures:
            raise self.failures[call]

    def Settings(self, **settings):
        if settings.keys() - WANDB_SETTINGS:
            raise ValueError(f"Extra inputs are not permitted: {settings.keys() - WANDB_SETTINGS}")
        return settings

    def Artifact(self, name, type):  # noqa: A002 - the client's names
        files = list[str]()

        def wait(timeout):
            assert timeout <= 60
            self.fail("wait")
            self.awaited.append(name)

        return types.SimpleNamespace(name=name, type=type, files=files, add_file=files.append, wait=wait)

    def init(self, **options):
        self.fail("init")
        self.runs.append(PlayedRun(self, options))
        return self.runs[-1]

    def termsetup(self, settings, logger):
        assert settings is self.runs[-1].settings
        self.told = logger

    def teardown(self, exit_code):
        self.torn_down.append(exit_code)


@pytest.fixture
def played_wandb(monkeypatch):
    played = PlayedWandb()
    monkeypatch.setitem(sys.modules, "wandb", played)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")  # an export sets it, where it is not set
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return played


def test_a_result_is_a_run_of_weights_and_biases(with_intervals, played_wandb, capsys):
    (with_intervals / "report.html").write_text("a page")
    assert main(["report", str(with_intervals), "--wandb"]) == 0
    assert "run abc of the project perfkit of Weights & Biases" in (told := capsys.readouterr().out)
    assert "wandb sync" not in told
    (run,) = played_wandb.runs
    assert (run.options["project"], run.options["name"], run.ended) == ("perfkit", "smoke", 0)
    config = run.options["config"]
    assert config["target"]["model"] == "m"
    assert config["load"]["closed"]["concurrency"] == [4]
    assert config["perfkit"] == {
        "status": "complete", "status_reason": "", "started_at": "2026-01-02T03:04:05.000+00:00", "commit": "c0ffee" * 6, "branch": "main",
    }  # fmt: skip
    assert run.options["settings"]["disable_git"]
    assert run.options["settings"]["x_disable_meta"]
    assert run.figures["http-concurrency-4/throughput_per_s_low"] == 490.0
    assert run.figures["http-concurrency-4/p99_ns"] == 6_000_000
    assert "http-concurrency-4/p99_ns_high" not in run.figures
    assert (run.figures["http-concurrency-4/valid"], run.figures["http-concurrency-8/valid"]) == (1.0, 0.0)
    assert run.files == {("smoke-abc", "perfkit-result"): ["result.json", "report.html"]}
    assert (played_wandb.awaited, played_wandb.torn_down) == (["smoke-abc"], [])


def test_a_run_that_waits_for_its_upload_says_how_it_is_uploaded(with_intervals, played_wandb, capsys):
    played_wandb.mode = "offline"
    assert main(["report", str(with_intervals), "--wandb=serving"]) == 0
    assert "of the project serving of Weights & Biases; to upload it: wandb sync wandb/offline-run-abc" in capsys.readouterr().out
    assert played_wandb.awaited == []


def test_a_result_that_is_not_complete_is_a_failed_run_of_weights_and_biases(tmp_path, played_wandb):
    document = {**stored_results.document(), "status": "interrupted", "status_reason": "for a reason"}
    assert main(["report", str(stored_results.write(tmp_path / "result", document)), "--wandb", "--quiet"]) == 0
    assert (played_wandb.runs[0].ended, played_wandb.runs[0].options["config"]["perfkit"]["status_reason"]) == (1, "for a reason")


@pytest.mark.parametrize(
    ("call", "failure", "words"),
    [
        ("init", PlayedWandb.Error("No API key configured."), "--wandb perfkit: No API key configured."),
        ("init", PlayedWandb.Error("Timed out. Consider increasing the init_timeout setting: …"), "--wandb perfkit: Timed out.\n"),
        (
            "init",
            settings_error(),
            "--wandb perfkit: WANDB_MODE, or mode in the client's settings file: Input should be 'online'",
        ),
        ("wait", ValueError("permission denied"), "--wandb perfkit: permission denied"),
        ("finish", TimeoutError("Timed out finishing run."), "--wandb perfkit: Timed out finishing run."),
    ],
)
def test_what_the_client_of_weights_and_biases_refuses_is_told_and_ends_it(with_intervals, played_wandb, capsys, call, failure, words):
    played_wandb.failures[call] = failure
    assert main(["report", str(with_intervals), "--wandb"]) == 2
    streams = capsys.readouterr()
    assert words in streams.err
    assert "run abc" not in streams.out
    assert played_wandb.torn_down == [1]


def test_figures_that_the_server_of_weights_and_biases_does_not_take_are_told(with_intervals, played_wandb, capsys):
    played_wandb.fatal = "wandb: WARNING Fatal error while uploading data. Some run data will not be synced."
    assert main(["report", str(with_intervals), "--wandb"]) == 2
    streams = capsys.readouterr()
    assert "the server did not take the figures of run abc: wandb: WARNING Fatal error while uploading data." in streams.err
    assert "run abc" not in streams.out


def test_a_client_of_weights_and_biases_that_is_disabled_is_refused(with_intervals, played_wandb, capsys):
    played_wandb.mode = "disabled"
    assert main(["report", str(with_intervals), "--wandb"]) == 2
    assert "remove WANDB_MODE=disabled" in capsys.readouterr().err


def test_an_interrupt_ends_the_client_of_weights_and_biases_too(with_intervals, played_wandb):
    played_wandb.failures["finish"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        log_runs([with_intervals], "perfkit")
    assert played_wandb.torn_down == [1]


@pytest.mark.usefixtures("played_wandb")
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["{0}", "--wandb", "{1}"], "is a result, and the option takes a project"),
        (["--wandb", "{1}/result.json"], "is a result, and the option takes a project"),
        (["{0}", "--wandb=team/serving"], "a team is named by WANDB_ENTITY"),
        (["{0}", "--wandb="], "argument --wandb: the value is empty"),
        (["{0}", "--mlflow="], "argument --mlflow: the value is empty"),
        (["{0}", "--otlp="], "argument --otlp: expected a URL"),
    ],
)
def test_what_is_no_project_and_no_address_is_refused_before_anything_is_written(folders, capsys, words, hint):
    with pytest.raises(SystemExit) as ended:
        main(["report", *(word.format(*folders) for word in words)])
    assert ended.value.code == 2
    assert hint in capsys.readouterr().err
    assert {path.name for path in folders[0].iterdir()} == {"result.json", "latency.hlog"}


def test_without_the_client_of_weights_and_biases_the_extra_is_named(with_intervals, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["report", str(with_intervals), "--wandb", "--quiet"]) == 2
    assert "--wandb needs the client of Weights & Biases: pip install '.[wandb]'" in capsys.readouterr().err


def test_exports_and_rankings_exclude_each_other(folders, capsys):
    assert main(["report", str(folders[0]), "--csv", "-", "--table-only"]) == 2
    assert "remove --table-only" in capsys.readouterr().err


@pytest.fixture
def result_folder(synthetic):
    maker = synthetic(concurrencies=(1, 2, 8), repetitions=1)
    maker.write()
    return maker.folder


def test_the_main_chart_is_drawn_for_slides_with_the_answer_above_it(result_folder, tmp_path, capsys):
    png, svg = tmp_path / "slide.png", tmp_path / "slide.svg"
    assert main(["report", str(result_folder), "--png", str(png), "--svg", str(svg)]) == 0
    assert capsys.readouterr().out == f"{png}\n{svg}\n"
    with Image.open(png) as picture:
        assert picture.size == (1920, 1080)
    text = svg.read_text()
    assert text.startswith("<?xml")
    assert BLUE[0] in text
    assert VERMILLION[0] in text
    assert not (result_folder / "report.html").exists()
    assert main(["report", str(result_folder), "--svg", str(tmp_path / "again.svg"), "--quiet"]) == 0
    assert (tmp_path / "again.svg").read_text() == text


def test_a_slide_has_the_sentence_of_each_protocol(synthetic, tmp_path):
    maker = synthetic(concurrencies=(1, 2, 8), repetitions=1, protocols=("http", "grpc"))
    maker.write()
    assert main(["report", str(maker.folder), "--svg", str(tmp_path / "slide.svg"), "--quiet"]) == 0
    title = " ".join(re.findall(r"<!-- (.*?) -->", (tmp_path / "slide.svg").read_text(), re.DOTALL)).replace("\n", " ")
    assert "http: " in title
    assert "grpc: " in title


def test_shaded_ranges_are_drawn_and_bad_ones_are_not_in_the_legend(synthetic):
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    maker = synthetic(protocols=("http",), concurrencies=(1, 4), repetitions=1, overloaded=(4,), stalled=(1,))
    result = maker.write()
    (chart,) = time_group(result, read_timeline(maker.folder, result)).charts[:1]
    assert {one.is_bad for one in chart.spans} == {True, False}
    axes = draw(result, maker.folder, "timeline", Figure().subplots())
    drawn = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    ends = [end for patch in drawn for end in (patch.get_x(), patch.get_x() + patch.get_width())]
    assert ends == pytest.approx([end for one in chart.spans for end in (one.low, one.high)])
    named = {one.label for one in chart.spans if one.label and not one.is_bad}
    shown = axes.get_legend_handles_labels()[1]
    assert [label for label in shown if label in named] == sorted(named, key=shown.index)
    assert "not valid" not in shown


def test_foreign_text_in_a_picture_is_no_formula(synthetic, tmp_path):
    maker = synthetic(concurrencies=(1, 2), repetitions=1, name="$\\frac{$", status="unsuccessful", status_reason="$x_{1 \x1b[31mfailed")
    maker.write()
    assert main(["report", str(maker.folder), "--png", str(tmp_path / "slide.png"), "--quiet"]) == 0


def test_the_picture_of_a_sweep_is_that_of_its_ranking(tmp_path):
    folder = sweep_page(tmp_path).parent
    assert main(["report", str(folder), "--svg", str(tmp_path / "sweep.svg"), "--quiet"]) == 0
    assert many_colour(2)[0] in (tmp_path / "sweep.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--png", "slide.svg"], "--png slide.svg: expected a name that ends in .png"),
        (["--png", "slide.png", "--csv", "-"], "--png and --svg draw a result as it is: remove --table-only"),
        (["--png", "no/such/folder/slide.png"], "no/such/folder/slide.png: cannot be written: No such file or directory"),
    ],
)
def test_a_picture_that_cannot_be_drawn_says_why(result_folder, arguments, sentence, capsys):
    assert main(["report", str(result_folder), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_single_picture_is_of_a_single_result_that_has_a_chart(result_folder, tmp_path, capsys):
    assert main(["report", str(result_folder), str(result_folder), "--png", "slide.png"]) == 2
    assert "--png and --svg draw one picture: give a single result or sweep" in capsys.readouterr().err
    Synthetic(tmp_path / "empty", samples=0).write()
    assert main(["report", str(tmp_path / "empty"), "--png", str(tmp_path / "slide.png")]) == 2
    assert "there is no chart for a picture" in capsys.readouterr().err


def test_the_percentiles_are_those_of_the_values_in_milliseconds():
    values_ms = range(1, 1001)
    lines = percentile_distribution(BucketCounts.of([value * 1_000_000 for value in values_ms])).splitlines()
    assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    rows = [tuple(map(float, line.split()[:3])) for line in lines[2:] if not line.startswith("#")]
    for value_ms, share, count in rows:
        assert value_ms == pytest.approx(count, rel=2e-3)  # the n-th smallest value is n
        assert count >= math.ceil(share * 1000 - 1e-6)
    assert rows[-1][1:] == (1.0, 1000.0)
    figures = dict(re.findall(r"(Mean|StdDeviation|Max|TotalCount) +=\s*([\d.]+)", "\n".join(lines)))
    assert float(figures["Mean"]) == pytest.approx(500.5, rel=1e-3)
    assert float(figures["StdDeviation"]) == pytest.approx(math.sqrt((1000**2 - 1) / 12), rel=1e-3)
    assert float(figures["Max"]) == pytest.approx(1000, rel=1e-3)


def test_what_mlflow_gets_has_no_secrets(tmp_path):
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "target: {url: 'http://me:s3cret@127.0.0.1:8000', model: m, headers: {authorization: Bearer s3cret, x-key: '${KEY}'}}\n"
        "load: {closed: {concurrency: 1}}\n"
    )
    document = scenario_document(read_scenario(scenario, environ={"KEY": "s3cret"}).scenario)
    params = parameters_of(read_result(stored_results.write(tmp_path / "result", {**stored_results.document(), "scenario": document}))[0])
    assert params["target.headers.authorization"] == "<redacted>"
    assert "s3cret" not in " ".join(params.values())


def test_one_format_alone_goes_to_stdout(folders, tmp_path, capsys):
    assert main(["report", str(folders[0]), "--bencher", "-", "--hgrm", str(tmp_path / "h")]) == 0
    streams = capsys.readouterr()
    assert set(json.loads(streams.out)) == {"smoke: http, concurrency 4"}
    assert ".hgrm" in streams.err
    assert main(["report", str(folders[0]), "--bencher", "-", "--csv", "-"]) == 2
    assert "--csv and --bencher: one format alone goes to stdout" in capsys.readouterr().err
