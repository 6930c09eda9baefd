"""The request of a tune from a scenario: its candidates, its server, and the files of its answer."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

import perfkit
from perfkit.clock import MonotonicClock
from perfkit.errors import ResultError, TargetError, UsageError
from perfkit.gate.arm import PREFIX, parse_arm
from perfkit.gate.tune.configured_server import ConfiguredServer, ModelControl, ReloadedServer, RestartedServer
from perfkit.gate.tune.folder import OUTCOME_FILE, PRESENT_FILE, Progress, TuneFolder, TuneInputs, read_present, read_progress
from perfkit.gate.tune.ladder import CONCURRENCIES
from perfkit.gate.tune.outcome import TuneOutcome, config_diff
from perfkit.gate.tune.pbtxt import config_text
from perfkit.gate.tune.space import Candidate, candidates_of_command, candidates_of_config, default_space, is_same_config, parse_space
from perfkit.gate.tune.tuning import TuneRequest
from perfkit.machine.cpus import usable_cpus
from perfkit.measurement.connections import max_connections
from perfkit.scenario.file import LoadedScenario, read_document, scenario_document
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec
from perfkit.scenario.measure import ObjectiveName
from perfkit.scenario.model import Scenario
from perfkit.target.address import redacted_url
from perfkit.target.changed_model import ChangedModel, describe_changed, find_changed


@dataclasses.dataclass(frozen=True, slots=True)
class TunePlan:
    """What a tune will measure, before it changes anything."""

    loaded: LoadedScenario
    candidates: tuple[Candidate, ...]
    ladder: tuple[int, ...]
    indifference: float
    control: ModelControl | None
    """Of the running server's model; None for a server that a command starts."""
    present: str
    """The model's present configuration as the server writes it; empty without `control`."""
    target: str
    objective: ObjectiveName = "goodput"
    rate_per_s: float | None = None
    """Of the arrivals, for `latency`."""

    def progress(self, seed: int, started_at: str) -> Progress:
        """What the folder says of the tune."""
        inputs = TuneInputs(
            scenario=scenario_document(self.loaded.scenario),
            target=self.target,
            candidates=tuple(dict(one.values) for one in self.candidates),
            ladder=self.ladder,
            objective=self.objective,
            rate_per_s=self.rate_per_s,
            indifference=self.indifference,
            perfkit=perfkit.__version__,
        )
        if self.control is None:
            return Progress(inputs=inputs, seed=seed, started_at=started_at)
        url = redacted_url(self.loaded.scenario.target.urls_by_protocol["http"][0])
        return Progress(inputs=inputs, seed=seed, started_at=started_at, restores=True, url=url, model=self.control.model)

    def request(self, folder: TuneFolder, time_limit_ns: int, ready_within_ns: int | None) -> tuple[TuneRequest, ConfiguredServer]:
        """The request, and its server; raises ResultError if the folder's tune found another configuration than the server has now."""
        server: ConfiguredServer = RestartedServer()
        if self.control is not None:
            if not is_same_config(folder.present, self.present):
                raise ResultError(
                    f"--out {folder.folder}: the configuration of model '{self.control.model}' has changed since: give another --out"
                )
            server = ReloadedServer(self.control, self.present, folder.folder, self.loaded.scenario.measure.cpus or ())
        return TuneRequest(self.loaded, self.candidates, server, time_limit_ns, ready_within_ns), server

    def files(self, outcome: TuneOutcome) -> dict[str, str]:
        """The texts of the outcome's files by name: the outcome, and the best configuration if it is another one than the present."""
        texts = {OUTCOME_FILE: json.dumps(outcome.document(), indent=1) + "\n"}
        if outcome.best and outcome.kind != "kept":
            best = self.candidates[outcome.best]
            if self.control is None:
                texts["best.json"] = json.dumps({"values": dict(best.values), "command": best.applied}, indent=1) + "\n"
            else:
                texts["best.config.pbtxt"] = config_text(json.loads(best.applied))
                texts["best.diff"] = config_diff(self.present, best.applied)
        return texts


def plan_tune(
    loaded: LoadedScenario,
    spaces: Sequence[str],
    *,
    indifference: float,
    is_default_load: bool,
    objective: ObjectiveName | None = None,
    resumed: pathlib.Path | None = None,
) -> TunePlan:
    """Reads the present configuration of a running server, and lists the candidates; raises UsageError and TargetError.

    With `is_default_load` the ladder is perfkit's own, otherwise the scenario's concurrencies. `objective` replaces the scenario's. `resumed` is the folder of a tune to
    continue, whose configuration is put back at first if it was killed.
    """
    scenario = loaded.scenario
    _check(loaded)
    objective = objective or (scenario.tune.objective if scenario.tune is not None else "goodput")
    rate_per_s = _rate_per_s(scenario, objective)
    given = parse_space(spaces)
    if not given and scenario.tune is not None and scenario.tune.space is not None:
        given = {key: tuple(map(_as_text, values)) for key, values in scenario.tune.space.items()}
    ladder: tuple[int, ...] = (0,)
    if isinstance(scenario.load, ClosedLoadSpec) and rate_per_s is None:
        most = max_connections(scenario)
        ladder = tuple(one for one in CONCURRENCIES if one <= most) if is_default_load else tuple(sorted(scenario.load.closed.concurrency))
    if scenario.target.command is not None:
        command = scenario.target.command
        parse_arm("the command", f"{PREFIX}{command}", scenario)
        candidates = candidates_of_command(command, given)
        return TunePlan(loaded, candidates, ladder, indifference, None, "", f"{PREFIX}{command}", objective, rate_per_s)
    urls = scenario.target.urls_by_protocol
    if not urls:
        raise UsageError("target: a tune needs a running server, or a command that starts one: give target.url or target.command")
    if list(urls) != ["http"] or len(urls["http"]) > 1:
        raise UsageError("target: a model's configuration is read and changed over HTTP: give the server's http:// URL alone")
    import uvloop

    control = ModelControl(loaded, urls["http"][0], MonotonicClock())
    if (folder := find_changed(control.address, control.model)) is not None:
        if resumed is None or folder != resumed.resolve():
            raise UsageError(f"{control.address}: {describe_changed(control.model, folder)}")
        put_back(folder, loaded)
    present = uvloop.run(control.read())
    try:
        candidates = candidates_of_config(present, given or default_space(json.loads(present), len(usable_cpus())))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise TargetError(f"{control.address}: the configuration of model '{control.model}' has another form than Triton's") from None
    return TunePlan(loaded, candidates, ladder, indifference, control, present, str(control.address), objective, rate_per_s)


def put_back(folder: pathlib.Path, loaded: LoadedScenario | None = None) -> str:
    """Puts back the configuration that the tune of a folder found; a sentence. Raises ResultError, UsageError and TargetError.

    `loaded` has the server's URL and what it takes to reach it; None for the URL that the folder names.
    """
    import uvloop

    progress = read_progress(folder)
    if not progress.restores:
        raise ResultError(f"--restore {folder}: this tune started its servers itself: there is nothing to put back")
    if loaded is None:
        target, load = {"url": progress.url, "model": progress.model}, {"closed": {"concurrency": 1}}
        loaded = read_document({"name": "restore", "target": target, "load": load}, environ={})
    urls = loaded.scenario.target.urls_by_protocol.get("http") or (progress.url,)
    server, model = redacted_url(urls[0]), loaded.scenario.target.model
    if (server, model) != (progress.url, progress.model):
        raise UsageError(
            f"--restore {folder}: it is of model '{progress.model}' of {progress.url}, not of model '{model}' of {server}: give that one"
        )
    control, present = ModelControl(loaded, urls[0], MonotonicClock()), read_present(folder)
    mark = ChangedModel(control.address, control.model, folder).set()
    try:
        if problem := uvloop.run(control.restore(present)):
            raise TargetError(f"{control.address}: the configuration of model '{control.model}' was not put back: {problem}")
        mark.clear()
    finally:
        mark.release()
    return f"{control.address}: model '{control.model}' has the configuration of {folder / PRESENT_FILE} again"


def _check(loaded: LoadedScenario) -> None:
    scenario = loaded.scenario
    if scenario.workloads is not None:
        raise UsageError("workloads: a tune measures one workload, and this scenario is a mix: give each workload a scenario of its own")
    if len(scenario.target.load_protocols) > 1:
        raise UsageError("target: a tune measures over one protocol: name one of them (--protocol http)")
    if scenario.fleet is not None:
        raise UsageError("fleet: a tune sends its load from this machine: remove fleet")
    if scenario.traces is not None:
        raise UsageError("traces: a tune traces no requests: remove traces")
    if scenario.measure.requests is not None:
        raise UsageError("measure.requests: a tune chooses the lengths of its windows: remove it")
    if scenario.slo is not None and scenario.slo.first_response is not None:
        raise UsageError("slo.first_response: a tune judges whole answers: remove it")


def _rate_per_s(scenario: Scenario, objective: ObjectiveName) -> float | None:
    """The rate of the objective's arrivals; None for closed loops. Raises UsageError where the scenario does not fit the objective."""
    load, given = scenario.load, scenario.tune.rate_per_s if scenario.tune is not None else None
    if objective == "cost" and (scenario.target.command is None or not scenario.telemetry):
        raise UsageError(
            "--objective cost: the CPUs that the server's processes use are known only of a server that perfkit starts, with telemetry: give "
            "cmd:COMMAND, and no telemetry: false"
        )
    if objective == "latency":
        rates = (
            ()
            if not isinstance(load, OpenLoadSpec) or load.open.arrivals != "poisson" or load.open.shape is not None
            else load.open.rates_per_s
        )
        if given is None and len(rates) != 1:
            raise UsageError("--objective latency: its load is Poisson arrivals at one rate: give --rate 200, or tune.rate in the scenario")
        return rates[0] if given is None else given
    if given is not None:
        raise UsageError(f"tune.rate: only the objective latency has a rate, not {objective}: remove it, or give --objective latency")
    if not isinstance(load, ClosedLoadSpec):
        raise UsageError(
            "load: a tune measures closed loops, whose concurrency it chooses: give load.closed, or leave out --rate; or give --objective latency"
        )
    return None


def _as_text(value: object) -> str:
    if isinstance(value, bool):  # YAML's off and on
        return "on" if value else "off"
    return str(value)
