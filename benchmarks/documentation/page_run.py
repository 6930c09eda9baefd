"""Executes the commands of a page in a folder and a network of their own, against the servers that the page is about."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

from benchmarks.documentation.commands import Command, commands_of, with_words
from benchmarks.documentation.made import write_models
from benchmarks.documentation.pages import SETUPS, TREATMENTS
from benchmarks.documentation.shell import Shell, TimedOutError
from benchmarks.documentation.treatment import PageSetup, Treatment
from benchmarks.fleet.namespaces import Laboratory
from benchmarks.release import clean_environment
from tests.docs.snippets import ROOT, snippets_of

RAN, FAILED, NOT_RUN = "executed", "failed", "not executable"
DISTURBED = 5
"""The exit code of a measurement that something else on this machine disturbed: the command did what the page says, its figures do not count."""
_SAYS_INVALID = "status: invalid"
_WITHIN_S = 580
_INTERRUPT = 'interrupt() { kill -INT "$background" && wait "$background"; }'
_AS_IT_STANDS = Treatment("")


class SetupError(Exception):
    """What the page takes as given could not be made."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a command."""

    place: str
    text: str
    state: str
    """One of RAN, FAILED and NOT_RUN."""
    exit_code: int | None = None
    seconds: float = 0.0
    output: str = ""
    shortened: str = ""
    """How it was shortened; empty for one that ran as it stands."""
    said: str = ""
    """The reason why it was not run, or what differs from the page."""

    @property
    def is_disturbed(self) -> bool:
        """Whether it ran, and its measurement was not valid on this machine."""
        return self.state == RAN and self.exit_code == DISTURBED


def treatment_of(page: str, command: Command) -> Treatment:
    """The first treatment of the page that fits the command; without one it is run as it stands."""
    return next((one for one in TREATMENTS.get(page, ()) if one.fits(command)), _AS_IT_STANDS)


def run_page(page: str, work: pathlib.Path) -> list[Outcome]:
    """Runs all commands of a page, in their order; after one that does not end, the others count as failed."""
    commands, outcomes = commands_of(page), []
    treatments = [treatment_of(page, command) for command in commands]
    if all(treatment.not_run for treatment in treatments):
        return [_not_run(command, treatment) for command, treatment in zip(commands, treatments, strict=True)]
    try:
        with page_shell(page, work) as (shell, folder):
            for command, treatment in zip(commands, treatments, strict=True):
                outcome = _not_run(command, treatment) if treatment.not_run else _run(shell, folder, command, treatment)
                print(f"{outcome.state} ({outcome.exit_code}), {outcome.seconds:.0f} s: {outcome.place} {outcome.text}", flush=True)
                if outcome.state == FAILED:
                    print(outcome.output, flush=True)
                outcomes.append(outcome)
    except (SetupError, TimedOutError) as error:
        print(f"{page}: {error!r}", flush=True)
        ended, *others = commands[len(outcomes) :]
        outcomes.append(Outcome(ended.place, ended.text, FAILED, output=str(error), said=error.__doc__ or ""))
        outcomes += [Outcome(one.place, one.text, FAILED, said="not reached") for one in others]
    return outcomes


@contextlib.contextmanager
def page_shell(page: str, work: pathlib.Path) -> Iterator[tuple[Shell, pathlib.Path]]:
    """A shell in a folder that has what the page takes as given, with its servers running; raises SetupError if that cannot be made."""
    setup = SETUPS.get(page, PageSetup())
    models = work / "models"
    if not models.exists():
        write_models(models)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perfkit-documentation-"))) / "perfkit"
        _fill(folder, page, setup, models)
        prefix: tuple[str, ...] = ()
        if not setup.installs:
            names = {"docs": ["127.0.0.1"], **{name: [ip] for name, ip in setup.names.items()}}
            host = stack.enter_context(Laboratory()).add_host("docs", names=names)
            prefix = host.prefix
            for ip in set(setup.names.values()) - {"127.0.0.1"}:
                host.run(["ip", "address", "add", f"{ip}/32", "dev", "lo"])
        shell = stack.enter_context(Shell(folder, _environment(folder, work, setup.environment), prefix))
        starts = [
            f"{{ {server.command.replace('{models}', str(models))} > ../server-{number}.log 2>&1 & }} && server=$! && "
            f"until grep -q '\"ready\"' ../server-{number}.log; do kill -0 $server || break; sleep 0.1; done; kill -0 $server"
            for number, server in enumerate(setup.servers)
        ]
        if setup.installs:
            _check_ports(setup)
        for step in (_INTERRUPT, *starts, setup.commands.replace("{models}", str(models))):
            code, output = shell.run(step or "true", _WITHIN_S)
            if code:
                raise SetupError(f"{page} cannot be set up: {step}\n{output}")
        yield shell, folder


def _check_ports(setup: PageSetup) -> None:
    """Raises SetupError if another server has one of the ports already."""
    for server in setup.servers:
        for port in (server.http_port, server.grpc_port):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    raise SetupError(f"port {port} is used by another server")


def _environment(folder: pathlib.Path, work: pathlib.Path, further: Mapping[str, str]) -> dict[str, str]:
    home = folder.parent / "home"
    home.mkdir()
    return {
        **clean_environment(folder),
        "HOME": str(home),
        "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PERFKIT_CACHE_DIR": str(work / "cache"),
        "PERFKIT_STATE_DIR": str(home / "state"),
        **{name: value.replace("{folder}", str(folder)) for name, value in further.items()},
    }


def _fill(folder: pathlib.Path, page: str, setup: PageSetup, models: pathlib.Path) -> None:
    if setup.installs:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S607
        for name in filter(None, listed.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    else:
        folder.mkdir()
        shutil.copytree(ROOT / "scenarios", folder / "scenarios")
    blocks = snippets_of(page, (ROOT / page).read_text(encoding="utf-8"), ("yaml", "yml"))
    texts = {name: next(one.text for one in blocks if one.text.startswith(start)) for name, start in setup.blocks.items()}
    for name, text in {**setup.files, **texts}.items():
        file = folder / name
        file.write_text(text.replace("{models}", str(models)), encoding="utf-8")
        if name.startswith("./"):
            file.chmod(0o755)


def _not_run(command: Command, treatment: Treatment) -> Outcome:
    return Outcome(command.place, command.text, NOT_RUN, said=treatment.not_run)


def _run(shell: Shell, folder: pathlib.Path, command: Command, treatment: Treatment) -> Outcome:
    """Runs a command with what its treatment puts before and after it."""
    began_s, line = time.monotonic(), as_run(command, treatment, folder)
    steps = {"before": (treatment.before, (0,)), "itself": (line, treatment.exit_codes), "after": (treatment.after, (0,))}
    state, exit_code, output = RAN, 0, ""
    for part, (step, accepted) in steps.items():
        if not step:
            continue
        code, text = shell.run(step, _WITHIN_S)
        output += text
        if part == "itself":
            exit_code = code
        if code not in accepted and not (part == "itself" and code == DISTURBED and _SAYS_INVALID in text):
            state, output = FAILED, f"{step}\nexit code {code}\n{output}"
            break
    shortened = "; ".join(
        [
            *([f"`{treatment.added}`"] if treatment.added else []),
            *(f"`{new}`" for _, new in treatment.replaced if new),
            *(f"`{name}={value}`" for name, value in treatment.environment.items() if name.startswith("PERFKIT_SET_")),
        ]
    )
    return Outcome(command.place, command.text, state, exit_code, time.monotonic() - began_s, output, shortened, treatment.note)


def as_run(command: Command, treatment: Treatment, folder: pathlib.Path) -> str:
    """The shell command that a command of a page becomes."""
    text = command.text
    for old, new in treatment.replaced:
        text = text.replace(old, new)
    if command.is_python:
        file = folder / f"snippet_{command.place.rpartition(':')[2]}.py"
        file.write_text(f"{text}\n", encoding="utf-8")
        text = f"python -m pytest -q -p no:cacheprovider {file.name}" if "def test_" in text else f"python {file.name}"
    elif treatment.script:
        parts, text = dataclasses.replace(command, text=text).parts, treatment.script
        for number, part in enumerate(parts):
            text = text.replace(f"{{{number}}}", part)
    if treatment.added:
        text = with_words(text, treatment.added)
    if treatment.is_ready:
        log = f"background-{command.place.rpartition(':')[2]}.log"
        return (
            f"{{ {text} > {log} 2>&1 & }} && background=$! && "
            f"until grep -q {treatment.is_ready} {log}; do kill -0 $background || {{ cat {log}; break; }}; sleep 0.1; done; kill -0 $background"
        )
    exports = "".join(f"export {name}={value!r}; " for name, value in treatment.environment.items())
    if command.is_console and not exports:
        return text
    return f"(set -e; {exports}\n{text}\n)"
