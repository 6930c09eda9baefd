"""The request of a tune from a scenario: its candidates, its server, and the files of its answer."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence

import perfkit
from perfkit.clock import MonotonicClock
from perfkit.errors import ResultError, TargetError, UsageError
from perfkit.gate.arm import PREFIX, RunningTarget, parse_arm
from perfkit.gate.tune.configured_server import ConfiguredServer, ReloadedServer, RestartedServer
from perfkit.gate.tune.folder import OUTCOME_FILE, PRESENT_FILE, Progress, TuneFolder, TuneInputs, read_present, read_progress
from perfkit.gate.tune.ladder import CONCURRENCIES
from perfkit.gate.tune.limits import check_limits, constraints_of, server_process
from perfkit.gate.tune.model_control import ModelControl, models_text
from perfkit.gate.tune.moves import SearchSpace
from perfkit.gate.tune.objective import objective_of
from perfkit.gate.tune.outcome import TuneOutcome, best_stem, changed_models, config_diff
from perfkit.gate.tune.pbtxt import config_text
from perfkit.gate.tune.repository import ModelRepository
from perfkit.gate.tune.space import (
    REPOSITORY,
    Candidate,
    Space,
    candidates_of_command,
    candidates_of_config,
    default_space_of,
    filled,
    first_values,
    is_same_config,
    parse_space,
)
from perfkit.gate.tune.tuning import TuneRequest
from perfkit.gate.tune.window_lengths import fitting
from perfkit.machine.cpus import usable_cpus
from perfkit.measurement.connections import max_connections
from perfkit.scenario.file import LoadedScenario, read_document, scenario_document
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec
from perfkit.scenario.measure import ObjectiveName
from perfkit.scenario.model import Scenario
from perfkit.target.address import redacted_url
from perfkit.target.changed_model import clear_marks_of, describe_changed, find_changed
from perfkit.units import NS_PER_S


@dataclasses.dataclass(frozen=True)
class TunePlan:
    """What a tune will measure, before it changes anything."""

    loaded: LoadedScenario
    candidates: tuple[Candidate, ...]
    ladder: tuple[int, ...]
    indifference: float
    target: str
    objective: ObjectiveName = "goodput"
    rate_per_s: float | None = None
    """The rate of the arrivals; only for `latency`."""
    present: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The present configurations of the models that are tuned, as the server writes them; empty where places of a command alone vary."""
    control: ModelControl | None = None
    """The control of the running server's models; None for a server that a command starts."""
    repository: ModelRepository | None = None

    @functools.cached_property
    def space(self) -> SearchSpace:
        """The candidates by their values."""
        return SearchSpace([one.values for one in self.candidates])

    def first(self, time_limit_ns: int) -> tuple[int, ...]:
        """The numbers of the candidates of the first round."""
        objective = objective_of(self.objective, self.rate_per_s)
        return self.space.first(fitting(self.loaded.scenario, len(self.ladder), time_limit_ns / NS_PER_S, objective))

    def progress(self, seed: int, started_at: str, time_limit_ns: int) -> Progress:
        """What the folder says of a tune that may take so long."""
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
        target, url = self.loaded.scenario.target, ""
        if self.control is not None:
            url = redacted_url(target.urls_by_protocol["http"][0])
        return Progress(
            inputs=inputs,
            seed=seed,
            started_at=started_at,
            restores=self.control is not None,
            url=url,
            model=target.model,
            first=self.first(time_limit_ns),
            models=tuple(self.present),
        )

    def request(self, folder: TuneFolder, time_limit_ns: int, ready_within_ns: int | None) -> tuple[TuneRequest, ConfiguredServer]:
        """The request, and its server; raises ResultError if the folder's tune found another configuration than the server has now."""
        if changed := [model for model, text in self.present.items() if not is_same_config(folder.present[model], text)]:
            raise ResultError(f"--out {folder.folder}: the configuration of {models_text(changed)} has changed since: give another --out")
        server: ConfiguredServer = RestartedServer(self.repository)
        if self.control is not None:
            scenario = self.loaded.scenario
            urls = scenario.target.urls_by_protocol
            pid = None if constraints_of(scenario).cpu is None else server_process(self.control.address)
            target = RunningTarget(urls.get("grpc", urls["http"])[0], scenario.measure.cpus or (), pid)
            server = ReloadedServer(self.control, self.present, folder.folder, target)
        return TuneRequest(self.loaded, self.candidates, server, time_limit_ns, ready_within_ns), server

    def files(self, outcome: TuneOutcome) -> dict[str, str]:
        """The texts of the outcome's files by name: the outcome, and the best configuration if it is another one than the present."""
        texts = {OUTCOME_FILE: json.dumps(outcome.document(), indent=1) + "\n"}
        if outcome.best and outcome.kind != "kept":
            best = self.candidates[outcome.best]
            for model in changed_models(self.candidates, outcome.best):
                stem = best_stem(model, self.loaded.scenario.target.model)
                texts[f"{stem}.config.pbtxt"] = config_text(json.loads(best.configs[model]))
                texts[f"{stem}.diff"] = config_diff(self.present[model], best.configs[model])
            if outcome.command:
                texts["best.json"] = json.dumps({"values": dict(best.values), "command": outcome.command}, indent=1) + "\n"
        return texts


def plan_tune(
    loaded: LoadedScenario,
    spaces: Sequence[str],
    *,
    indifference: float,
    is_default_load: bool,
    objective: ObjectiveName | None = None,
    resumed: pathlib.Path | None = None,
    repository: pathlib.Path | None = None,
    ready_within_ns: int | None = None,
) -> TunePlan:
    """Reads the present configuration of a server, and lists the candidates; raises UsageError and TargetError.

    With `is_default_load` the ladder is perfkit's own, otherwise the scenario's concurrencies. `objective` replaces the scenario's. `resumed` is the folder of a tune to
    continue, whose configuration is put back at first if it was killed. `repository` is that of a server that the command starts, which is
    started once for this.
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
        ladder = tuple(one for one in CONCURRENCIES if one <= most) if is_default_load else tuple(sorted(scenario.load.closed.levels))
    if scenario.target.command is not None:
        command = scenario.target.command
        parse_arm("the command", f"{PREFIX}{command}", scenario)
        check_limits(scenario, None)
        target, fixed = f"{PREFIX}{command}", (objective, rate_per_s)
        if repository is None:
            return TunePlan(loaded, candidates_of_command(command, given), ladder, indifference, target, *fixed)
        models = ModelRepository(repository, scenario.target.model)
        candidates, present = _candidates_of_repository(loaded, given, models, ready_within_ns)
        return TunePlan(loaded, candidates, ladder, indifference, target, *fixed, present, repository=models)
    if repository is not None:
        raise UsageError("--repository goes with a command that starts the server: cmd:COMMAND, with {repository} in it")
    urls = scenario.target.urls_by_protocol
    if not urls:
        raise UsageError("target: a tune needs a running server, or a command that starts one: give target.url or target.command")
    if "http" not in urls or any(len(replicas) > 1 for replicas in urls.values()):
        raise UsageError(
            "target: a model's configuration is read and changed over HTTP: give the http:// URL of one server, beside its grpc:// URL where "
            "load is to go over gRPC"
        )
    import uvloop

    control = ModelControl(loaded, urls["http"][0], MonotonicClock())
    check_limits(scenario, control.address)
    texts = uvloop.run(control.read())
    found = {folder: model for model in texts if (folder := find_changed(control.address, model)) is not None}
    for folder, model in found.items():
        if resumed is None or folder != resumed.resolve():
            raise UsageError(f"{control.address}: {describe_changed(model, folder)}")
        put_back(folder, loaded)
    texts = uvloop.run(control.read()) if found else texts
    candidates = _candidates(texts, given, str(control.address))
    present = {model: texts[model] for model in candidates[0].configs}
    return TunePlan(loaded, candidates, ladder, indifference, str(control.address), objective, rate_per_s, present, control)


def _candidates_of_repository(
    loaded: LoadedScenario, given: Space, repository: ModelRepository, ready_within_ns: int | None
) -> tuple[tuple[Candidate, ...], Mapping[str, str]]:
    """The candidates, and the present configurations of their models, which the server reads from the repository."""
    command = loaded.scenario.target.command or ""
    if f"{{{REPOSITORY}}}" not in command:
        raise UsageError(f"{command}: it does not say where the server takes its models: write {{{REPOSITORY}}} in it")
    started = filled(command, first_values(command, given))
    texts = repository.read_present(loaded, started, MonotonicClock(), ready_within_ns)
    candidates = _candidates(texts, given, f"{PREFIX}{started}", command)
    return candidates, {model: texts[model] for model in candidates[0].configs}


def _candidates(texts: Mapping[str, str], given: Space, server: str, command: str = "") -> tuple[Candidate, ...]:
    try:
        space = given or default_space_of({model: json.loads(text) for model, text in texts.items()}, len(usable_cpus()))
        return candidates_of_config(texts, space, command)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise TargetError(f"{server}: the configuration of model '{next(iter(texts))}' has another form than Triton's") from None


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
    marks = control.marks(present, folder).set()
    try:
        if problem := uvloop.run(control.restore(present)):
            raise TargetError(f"{control.address}: the configuration of {models_text(present)} was not put back: {problem}")
        marks.clear()
        clear_marks_of(folder)
    finally:
        marks.release()
    has = "has" if len(present) == 1 else "have"
    return f"{control.address}: {models_text(present)} {has} the configuration of {folder / PRESENT_FILE} again"


def _check(loaded: LoadedScenario) -> None:
    scenario = loaded.scenario
    if scenario.workloads is not None:
        raise UsageError("workloads: a tune measures one workload, and this scenario is a mix: give each workload a scenario of its own")
    if scenario.target.is_started and len(scenario.target.load_protocols) > 1:
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
    if not isinstance(load, ClosedLoadSpec) or load.closed.ramp is not None:
        raise UsageError(
            "load: a tune measures closed loops, whose concurrency it chooses: give load.closed, or leave out --rate; or give --objective latency"
        )
    return None


def _as_text(value: object) -> str:
    if isinstance(value, bool):  # YAML's off and on
        return "on" if value else "off"
    return str(value)
