"""The manifest of a gate, `gate.json`: what was asked, what its trial fixed, and how often it was continued. Pure."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from perfkit.clock import parse_instant
from perfkit.gate.verdict import GateResumption, Timing
from perfkit.history.accepted import AcceptedChange
from perfkit.result.checks import HIGHEST_RATE_PER_S
from perfkit.result.fingerprint import scenario_differences
from perfkit.result.part import Part

SCHEMA = "perfkit.gate/1"
LONGEST_S = 1e9
_MOST_KEYS = 5


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

    warmup_ns: int
    window_ns: int | None
    """The window in nanoseconds; null where a number of requests ends it."""
    concurrency: int | None = None
    """The concurrency of the standard profile's closed loop."""
    rate_per_s: float | None = None
    """The rate of the standard profile's open loop."""
    capacity_per_s: float | None = None
    """The baseline's throughput at saturation, from which the rate is derived."""
    pairs: int | None = None
    """The pairs of the last look, if they are not the default."""
    timing: Timing | None = None
    """How window and pairs were chosen."""
    trial_s: float = 0.0
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
    started_at: str
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


def manifest_problems(manifest: GateManifest) -> Iterator[tuple[str, str]]:
    """What no gate could have stored in the manifest of an unfinished one."""
    try:
        parse_instant(manifest.started_at)
    except ValueError:
        yield "started_at", f"{manifest.started_at[:50]!r} is no instant"
    settings = manifest.settings
    if settings is not None:
        if not 0 <= settings.trial_s <= LONGEST_S:
            yield "fixed.trial_s", f"{settings.trial_s} is below zero, or more than could be measured"
        limits = {
            "warmup_ns": 1e15,
            "window_ns": 1e15,
            "concurrency": 1e6,
            "rate_per_s": HIGHEST_RATE_PER_S,
            "capacity_per_s": HIGHEST_RATE_PER_S,
        }
        for name, highest in limits.items():
            value = getattr(settings, name)
            if value is not None and not (0 < value <= highest or (name == "warmup_ns" and value == 0)):
                yield f"fixed.{name}", f"{value} is not above zero, or more than could be measured"
