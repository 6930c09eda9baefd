"""Tunes of real servers whose best configuration is known by their declared law: the bundled server, and Triton's Python backend.

    python -m benchmarks.tune_live [--time 8m] [--only NAME …] [--peers FOLDER] [--out reports/tune-live.md]

Each case is a `perfkit tune` of `--time` at most; all five take up to five times as long. What was chosen is compared with the throughput that the law gives, as a formula: the answer must be decided, and within 3 % of the best of the space. After each tune of Triton, the model's configuration must be
the one before. The exit code is 1 if that is not so, or a tune ends with an error.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import Triton, running_triton
from benchmarks.processes import ROOT
from benchmarks.report import Report, describe_machine, program_options
from perfkit.gate.tune.outcome import TuneOutcome
from perfkit.gate.tune.space import is_same_config, parse_space
from perfkit.result.part import read_part

MODELS = ROOT / "benchmarks" / "peers" / "triton_tune_models"
_MOST_LOSS = 0.03
_BATCH = 8
Values = Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A server, its space, and the throughput of each configuration, in any unit."""

    name: str
    space: tuple[str, ...]
    law: Callable[[Values], float]
    options: tuple[str, ...] = ()
    model: str = ""
    """The model of Triton; empty for the bundled server."""


def _batch_cost(values: Values) -> float:
    """12 ms an execution and 1 ms a request in each instance: as much as the batches are full."""
    batch = _BATCH if values["dynamic_batching"] == "on" else 1
    return int(values["instance_group.count"]) * batch / (12 + batch)


def _shared_lock(values: Values) -> float:
    """The same with one instance at a time."""
    batch = _BATCH if values["dynamic_batching"] == "on" else 1
    return batch / (12 + batch)


def _crowded(values: Values) -> float:
    """2 ms an execution and 10 ms a request; slower by 150 % for each instance beyond two."""
    count, batch = int(values["instance_group.count"]), _BATCH if values["dynamic_batching"] == "on" else 1
    return count * batch / (2 + 10 * batch) / (1 + 1.5 * max(count - 2, 0))


def _servers(values: Values) -> float:
    """10 ms in each server: also under 25 ms, as two requests for each are in flight then, and all servers are busy."""
    return int(values["servers"])


_SPACE = ("instance_group.count=1,2,3", "dynamic_batching=off,on")
CASES = (
    Case("Triton: a cost per batch", _SPACE, _batch_cost, ("-c", "1,2,4,8,16,32"), "batch_cost"),
    Case("Triton: a lock that instances share", _SPACE, _shared_lock, ("-c", "1,2,4,8,16,32"), "shared_lock"),
    Case("Triton: a penalty beyond two instances", _SPACE, _crowded, ("-c", "1,2,4,8,16,32"), "crowded"),
    Case("bundled server: servers", ("servers=1,2,4,6",), _servers),
    Case("bundled server: servers, p95 < 25 ms", ("servers=1,2,4",), _servers, ("--slo", "p95=25ms")),
)


@contextlib.contextmanager
def models_folder() -> Iterator[pathlib.Path]:
    """The models, each with its program, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="perfkit-tune-models-") as name:
        for model in MODELS.iterdir():
            if (model / "config.pbtxt").exists():  # Python may have left a folder of its own beside the models
                (pathlib.Path(name) / model.name / "1").mkdir(parents=True)
                shutil.copy(model / "config.pbtxt", pathlib.Path(name) / model.name)
                shutil.copy(MODELS / "law.py", pathlib.Path(name) / model.name / "1" / "model.py")
        yield pathlib.Path(name)


def tune(case: Case, triton: Triton | None, time: str, folder: pathlib.Path) -> tuple[int, TuneOutcome | None]:
    """Runs a tune; its exit code and outcome."""
    if triton is not None:
        target = [triton.url(), "-m", case.model]
    else:
        server = f"{shlex.quote(sys.executable)} -m server_stub --model synthetic --http-port {{port}} --grpc-port 0 --exit-with-stdin"
        law = "--synthetic service=constant:10ms,servers={servers}"
        target = [f"cmd:{server} {law}", "-m", "synthetic", "--shape", "INPUT0=4"]
    spaces = [word for one in case.space for word in ("--space", one)]
    command = [sys.executable, "-m", "perfkit", "tune", *target, *spaces, *case.options, "--time", time, "--out", str(folder)]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    file = folder / "tune.json"
    return code, read_part(file, TuneOutcome, "perfkit.tune/1") if file.exists() else None


def config_of(triton: Triton, model: str) -> str:
    """A model's configuration."""
    return json.dumps(triton.request(f"v2/models/{model}/config"))


def loss_of(case: Case, outcome: TuneOutcome) -> float:
    """By which share the best configuration of the space is better than the chosen one, by the law; infinite without one."""
    if outcome.best is None:
        return math.inf
    best, space = 0 if outcome.kind == "kept" else outcome.best, parse_space(case.space)
    laws = [case.law(dict(zip(space, values, strict=True))) for values in itertools.product(*space.values())]
    return max(laws) / case.law(outcome.row(best).values) - 1


def main() -> int:
    """Tunes each server."""
    options = program_options(
        __doc__, out="tune-live", time=("8m", "of each tune"), only=([""], "the cases whose names contain this"), peers=peers_folder(None)
    )
    report = Report(options.out, "Tunes of servers whose best configuration is known")
    report.add(f"Each tune takes {options.time} at most. {describe_machine()}", "")
    report.table("server", "answer", ">loss", ">configurations", ">rounds", ">minutes", "put back", "met")
    cases = [case for case in CASES if any(one in case.name for one in options.only)]
    with contextlib.ExitStack() as stack:
        triton = None
        if any(case.model for case in cases):
            models = stack.enter_context(models_folder())
            loaded = [f"--load-model={model.name}" for model in models.iterdir()]
            triton = stack.enter_context(running_triton(options.peers, models=models, options=["--model-control-mode=explicit", *loaded]))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perfkit-tunes-")))
        for number, case in enumerate(cases):
            server = triton if case.model else None
            before = config_of(server, case.model) if server is not None else ""
            code, outcome = tune(case, server, options.time, folder / str(number))
            is_back = server is None or is_same_config(config_of(server, case.model), before)
            if outcome is None:
                report.judged_row(False, case.name, f"exit code {code}", "–", "–", "–", "–", "yes" if is_back else "no")
                continue
            loss = loss_of(case, outcome)
            report.judged_row(
                is_back and code == 0 and loss <= _MOST_LOSS,  # 3 is undecided
                case.name,
                f"{outcome.kind}: {outcome.sentence}",
                f"{loss:.1%}",
                len(outcome.rows),
                outcome.rounds,
                f"{outcome.duration_s / 60:.1f}",
                "–" if server is None else "yes" if is_back else "no",
            )
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
