"""The command line of a gate as words, with other options and settings. Pure."""

import shlex
from collections.abc import Mapping, Sequence

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
