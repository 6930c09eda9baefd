"""Build both archives twice, and use them outside the checkout as a user would: `python -m benchmarks.release`.

    python -m benchmarks.release --python python3.11 --python python3.13 [--tests tests] [--dist dist] [--out reports/release-check.md]

It takes the files of the last commit. Each Python gets a virtual environment in an empty folder with the wheel and the newest packages
that fit it; there perfkit measures a scenario that it ships, and a running server by its URL. Where `--tests` names tests of the sdist,
they run in a further environment with the versions of `constraints.txt`. The exit code is 1 if anything fails.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row, yes_no
from perfkit.installation import REPOSITORY

ROOT = pathlib.Path(__file__).parents[1]
SHORT = ("measure.duration=1s", "measure.warmup=500ms", "measure.repetitions=1", "load.closed.concurrency=[1,2]")
_WAIT_S = 60
_TESTS_WAIT_S = 3 * 3600
_TOTALS = re.compile(r"\d+ (?:passed|failed|skipped|errors?|xfailed|deselected)\b")


@dataclasses.dataclass(frozen=True)
class Step:
    """A command that was run: whether it succeeded, its wall time, and the part of its output that is worth reading."""

    name: str
    is_done: bool
    seconds: float
    said: str = ""

    def __str__(self) -> str:
        return f"{'' if self.is_done else '**failed**: '}{self.said or ('done' if self.is_done else 'see above')} ({self.seconds:.0f} s)"


def clean_environment(folder: pathlib.Path) -> dict[str, str]:
    """The environment without what would lead to the checkout or to this machine's own caches and settings of perfkit."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERFKIT_", "VIRTUAL_ENV"))}
    return {**kept, "PERFKIT_CACHE_DIR": f"{folder}-cache", "COLUMNS": "120"}


def run_step(
    name: str,
    command: Sequence[object],
    folder: pathlib.Path,
    says: str | None = None,
    wait_s: float = 1800,
    exit_codes: Collection[int] = (0,),
    **variables: str,
) -> Step:
    """Run a command in a folder; `says` is a pattern that its output must have, and the first match is reported."""
    words, began_s = list(map(str, command)), time.monotonic()
    print(f"$ {shlex.join(words)}", flush=True)
    environment = {**clean_environment(folder), **variables}
    try:
        ended = subprocess.run(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=wait_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Step(name, is_done=False, seconds=time.monotonic() - began_s, said=f"not ended after {wait_s:.0f} s")
    seconds = time.monotonic() - began_s
    found = re.search(says, ended.stdout, re.MULTILINE) if says else None
    is_done = ended.returncode in exit_codes and (says is None or found is not None)
    if not is_done:
        print(ended.stdout, flush=True)
    said = found[0].strip() if found else "" if is_done else f"exit code {ended.returncode}"
    return Step(name, is_done, seconds, said)


def build(commit: str, folder: pathlib.Path) -> tuple[dict[str, str], pathlib.Path]:
    """Build both archives of a commit twice; gives the SHA-256 sums that agree, by file name, and the folder of the files."""
    epoch_s = git("log", "-1", "--format=%ct", commit).decode().strip()
    sums: list[dict[str, str]] = []
    for name in ("one", "two"):
        source, dist = folder / name / "perfkit", folder / name / "dist"
        source.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as archive:
            archive.extractall(source, filter="data")
        command = (sys.executable, "-m", "build", "--outdir", dist, source)
        if not run_step("build", command, folder, SOURCE_DATE_EPOCH=epoch_s).is_done:
            raise SystemExit("the archives cannot be built")
        shutil.rmtree(source)
        sums.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(dist.iterdir())})
    return {name: value for name, value in sums[0].items() if sums[1].get(name) == value}, folder / "one" / "dist"


def git(*words: str) -> bytes:
    """What a git command prints in the checkout."""
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def make_environment(python: str, folder: pathlib.Path, *packages: object) -> tuple[pathlib.Path, list[Step]]:
    """A virtual environment with some packages: the folder of its programs, and how it was made."""
    folder.mkdir(parents=True)
    programs = folder / "venv" / "bin"
    made = run_step("venv", (python, "-m", "venv", folder / "venv"), folder)
    installed = (
        run_step("pip install", (programs / "python", "-m", "pip", "install", "--quiet", *packages), folder) if made.is_done else made
    )
    return programs, [installed, run_step("pip check", (programs / "python", "-m", "pip", "check"), folder)]


@contextlib.contextmanager
def served(perfkit: pathlib.Path, folder: pathlib.Path) -> Iterator[Mapping[str, int]]:
    """The bundled server as `perfkit serve` starts it; gives its ports."""
    command = (perfkit, "serve", "--http-port", "0", "--grpc-port", "0", "--model", "simple", "--exit-with-stdin")
    with subprocess.Popen(
        command, cwd=folder, env=clean_environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(_WAIT_S)


def use_wheel(python: str, wheel: pathlib.Path, folder: pathlib.Path) -> list[Step]:
    """Install the wheel into an empty environment and measure with it, in an empty folder."""
    programs, steps = make_environment(python, folder, f"{wheel}[server]")
    if not steps[0].is_done:
        return steps
    perfkit, empty = programs / "perfkit", folder / "empty"
    empty.mkdir()

    def measured(name: str, *words: object) -> Step:
        answer = r"(?i)^.*(?:/s at concurrency|is enough|no load point is valid).*$"
        return run_step(name, (perfkit, "run", *words), empty, answer, exit_codes=(0, 5))  # 5: this machine is too busy

    short = ("-c", "1,2", "--duration", "1s")
    steps += [
        run_step("perfkit --version", (perfkit, "--version"), empty, r"perfkit \d+\.\d+\.\d+\S*"),
        run_step("perfkit help exit-codes", (perfkit, "help", "exit-codes"), empty, r"\bdone\b"),
        measured("perfkit run densenet", "densenet", *(word for setting in SHORT for word in ("--set", setting)), "--out", "densenet"),
    ]
    with served(perfkit, empty) as ports:
        http, grpc = f"http://127.0.0.1:{ports['http_port']}", f"grpc://127.0.0.1:{ports['grpc_port']}"
        steps += [
            measured("perfkit run http://… -m simple", http, "-m", "simple", *short, "--out", "http"),
            measured("perfkit run grpc://… -m simple", grpc, "-m", "simple", *short, "--out", "grpc"),
            run_step("perfkit init http://…", (perfkit, "init", http, "-m", "simple", "--out", "mine.yaml"), empty),
            run_step("perfkit validate mine.yaml", (perfkit, "validate", "mine.yaml"), empty, r"valid; .*"),
        ]
    code = "import perfkit; print(len(perfkit.load_result('http').summary), 'load points')"
    return [*steps, run_step("perfkit.load_result", (programs / "python", "-c", code), empty, r"\d+ load points")]


def run_tests(python: str, sdist: pathlib.Path, folder: pathlib.Path, tests: Sequence[str]) -> list[Step]:
    """Install the unpacked sdist with its tests' packages, in the versions of its constraints, and run tests in it."""
    folder.mkdir(parents=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.glob("perfkit-*")
    programs, steps = make_environment(python, folder / "environment", "-c", source / "constraints.txt", "-e", f"{source}[server,dev]")
    if not steps[0].is_done:
        return steps
    command = (programs / "python", "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal", *tests)
    done = run_step(f"pytest {' '.join(tests)}", command, source, r"^.*\bpassed\b.* in .*$", wait_s=_TESTS_WAIT_S)
    return [*steps, dataclasses.replace(done, said=", ".join(_TOTALS.findall(done.said)) or done.said)]


def version_of(python: str) -> str:
    """The version of an interpreter."""
    code = "import platform; print(platform.python_version())"
    return subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def report_lines(sums: Mapping[str, str], steps: Mapping[str, Sequence[Step]], heading: Sequence[str]) -> list[str]:
    """The report: the archives, then every step with a column for each Python."""
    lines = [*heading, "", "## Archives", "", *table_head("file", "two builds agree", "SHA-256")]
    kinds = {"sdist": ".tar.gz", "wheel": ".whl"}
    for kind, suffix in kinds.items():
        name = next((name for name in sums if name.endswith(suffix)), None)
        lines.append(table_row(f"`{name}`" if name else kind, yes_no(name is not None), f"`{sums[name]}`" if name else "–"))
    names = list(dict.fromkeys(step.name for column in steps.values() for step in column))
    cells = {name: [next((str(step) for step in column if step.name == name), "–") for column in steps.values()] for name in names}
    rows = [table_row(f"`{name}`", *cells[name]) for name in names]
    return [*lines, "", "## Outside the checkout", "", *table_head("step", *(f"Python {version}" for version in steps)), *rows]


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "release-check.md")
    parser.add_argument(
        "--python", action="append", metavar="PROGRAM", help="an interpreter to use, repeated for several (default: this one)"
    )
    parser.add_argument("--tests", nargs="*", default=[], metavar="PATH", help="tests of the sdist to run, such as tests (default: none)")
    parser.add_argument("--dist", type=pathlib.Path, metavar="FOLDER", help="where the archives are left (default: nowhere)")
    return parser.parse_args()


def main() -> int:
    """Runs the program and returns its exit code."""
    options = parse_options()
    if git("status", "--porcelain"):
        raise SystemExit("the checkout has changes: commit them first, since the archives are made of the last commit")
    machine, steps, commit = describe_machine(), {}, git("rev-parse", "--short", "HEAD").decode().strip()
    with tempfile.TemporaryDirectory(prefix="perfkit-release-") as name:
        folder = pathlib.Path(name)
        sums, dist = build(commit, folder)
        (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
        for program in options.python or [sys.executable]:
            if (python := shutil.which(program)) is None:
                raise SystemExit(f"--python {program}: there is no such program")
            python = str(pathlib.Path(python).absolute())
            version = version_of(python)
            steps[version] = use_wheel(python, wheel, folder / version / "wheel")
            if options.tests:
                steps[version] += run_tests(python, sdist, folder / version / "sdist", options.tests)
        if options.dist:
            shutil.copytree(dist, options.dist, dirs_exist_ok=True)
    heading = [
        "# The release, built and used outside the checkout",
        "",
        f"Commit {commit}. {machine}",
    ]
    if "/OWNER/" in REPOSITORY:
        heading += ["", "Not to be published yet: the metadata name the account OWNER (RELEASING.md)."]
    is_met = len(sums) == 2 and all(step.is_done for column in steps.values() for step in column)
    return publish(options.out, report_lines(sums, steps, heading), is_met=is_met)


if __name__ == "__main__":
    sys.exit(main())
