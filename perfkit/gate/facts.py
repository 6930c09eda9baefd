"""The command line of a gate and what its next steps need to know besides the verdict. Pure."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class GateFacts:
    """What next steps need to know besides the verdict."""

    command: tuple[str, ...]
    """The words of the command line that was entered, without secrets."""
    is_standard: bool = False
    """Whether the profile is `standard`."""
    counts_requests: bool = False
    """Whether `measure.requests` ends the windows."""
    warmup_ns: int | None = None
    """Of every run."""
    concurrency: int | None = None
    """Of the standard profile's closed loop."""
    workers: int = 1
    """The load generator's processes, if the scenario gives them."""
    metrics: tuple[str, ...] = ()
    """The metrics that count besides the error rate."""
    folder: str = ""
    """The gate's folder."""
    scenario: str = ""
    """The scenario as it was entered."""
    starts_servers: bool = False
    """Whether both arms are commands."""

    def changed(self, settings: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None) -> str:
        """The command line with other settings and options; a time limit gives way to other pairs."""
        without = ("--time",) if options and "--pairs" in options else ("--pairs",) if options and "--time" in options else ()
        return changed_command(self.command, options=options or {}, settings=settings or {}, without=without)


_OF_THIS_GATE = ("--out",)  # a folder that is finished: the next gate gets its own
_FLAG_OF_THIS_GATE = "--resume"
_NOTHING: Mapping[str, str] = {}


def changed_command(
    words: Sequence[str], *, options: Mapping[str, str] = _NOTHING, settings: Mapping[str, str] = _NOTHING, without: Sequence[str] = ()
) -> str:
    """The command line with these options and `--set KEY=VALUE` in place of its own, and without those of `without`; for a shell."""
    replaced, kept = {*options, *without, *_OF_THIS_GATE}, list[str]()
    given = iter(words)
    for word in given:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name == "--set":
            setting = value if equals else next(given, "")
            if setting.partition("=")[0] not in settings:
                kept += ["--set", setting]
        elif name == _FLAG_OF_THIS_GATE:
            continue
        elif name in replaced:
            if not equals:
                next(given, None)
        else:
            kept.append(word)
    for name, value in options.items():
        kept += [name, value]
    for key, value in settings.items():
        kept += ["--set", f"{key}={value}"]
    return shlex.join(kept)
