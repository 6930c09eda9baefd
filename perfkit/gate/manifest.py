"""The manifest of a gate, `gate.json`: what was asked, what its trial fixed, and how often it was continued. Pure."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from perfkit.clock import parse_instant
from perfkit.gate.verdict import MOST, GateResumption, Seconds, Timing
from perfkit.history.accepted import AcceptedChange
from perfkit.result.checks import HIGHEST_RATE_PER_S
from perfkit.result.fingerprint import scenario_differences
from perfkit.result.part import Part

SCHEMA = "perfkit.gate/1"
_MOST_KEYS = 5
_Rate = Annotated[float, Field(gt=0, le=HIGHEST_RATE_PER_S)]


def _check_instant(text: str) -> str:
    try:
        parse_instant(text)
    except ValueError:
        raise ValueError(f"{text[:50]!r} is no instant") from None
    return text


class GateInputs(Part):
    """The inputs of a gate; an interrupted gate continues only with the same inputs."""

    scenario: dict[str, Any]
    baseline: str
    candidate: str
    pairs: int | None = None
    """The pairs of the last look; None for the default, or for as many as the time allows."""
    time_limit_ns: int | None = None
    """The time for the whole gate; None for as long as it takes."""
    control_pairs: int
    accepted: tuple[AcceptedChange, ...] = ()
    """The accepted changes of the scenario."""
    perfkit: str
    """The version: another one may define its metrics differently."""


class FixedSettings(Part):
    """The settings that are fixed before the first pair and hold for all of them."""

    warmup_ns: Annotated[int, Field(ge=0, le=MOST)]
    window_ns: Annotated[int, Field(gt=0, le=MOST)] | None
    """The window in nanoseconds; null where a number of requests ends it."""
    concurrency: Annotated[int, Field(gt=0, le=10**6)] | None = None
    """The concurrency of the standard profile's closed loop."""
    rate_per_s: _Rate | None = None
    """The rate of the standard profile's open loop."""
    capacity_per_s: _Rate | None = None
    """The baseline's throughput at saturation, from which the rate is derived."""
    pairs: int | None = None
    """The pairs of the last look, if they are not the default."""
    timing: Timing | None = None
    """How window and pairs were chosen."""
    trial_s: Seconds = 0.0
    """How long the trial took."""
    ended_at: str = ""
    """The wall-clock time of the trial's end."""
    notes: tuple[str, ...] = ()
    environment: dict[str, Any] = Field(default_factory=dict)
    """The load generator's environment, and what each server reports about itself."""


class GateManifest(Part):
    """The manifest of a gate, `gate.json`."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    inputs: Annotated[GateInputs, Field(alias="asked")]
    seed: int
    started_at: Annotated[str, AfterValidator(_check_instant)]
    files: dict[str, str] = Field(default_factory=dict)
    """The files that the arms' commands name, with their state; see `Arm.files`."""
    settings: Annotated[FixedSettings | None, Field(alias="fixed")] = None
    """What was fixed before the first pair; null until then."""
    resumptions: tuple[GateResumption, ...] = ()
    """Each time that the gate was interrupted, killed or failed, and then continued."""


def manifest_difference(stored: GateManifest, wanted: GateManifest) -> str:
    """Why the stored gate is another one, as the end of a sentence; empty if it is the same."""
    documents = stored.inputs.document(), wanted.inputs.document()
    changed = [name for name in GateInputs.model_fields if documents[0][name] != documents[1][name]]
    if changed:
        of_scenario = (
            [one.key for one in scenario_differences(stored.inputs.scenario, wanted.inputs.scenario)] if "scenario" in changed else []
        )
        keys = [*of_scenario[:_MOST_KEYS], *([f"{len(of_scenario) - _MOST_KEYS} more keys"] if len(of_scenario) > _MOST_KEYS else [])]
        shown = ", ".join([*keys, *(name for name in changed if name != "scenario" or not keys)])
        return f" with different inputs ({shown}): give the same inputs to continue it, remove it, or give another --out"
    for file, state in wanted.files.items():
        if stored.files.get(file, state) != state:
            return f", and {file} has changed since, so its pairs are of another server: remove it, or give another --out"
    return ""
