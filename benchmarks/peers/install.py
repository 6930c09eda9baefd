"""Installs the programs that perfkit is compared with, from public packages and outside the project.

    python3 benchmarks/peers/install.py [--no-triton] [FOLDER]

FOLDER is by default `$PERFKIT_PEERS`, or else `~/.cache/perfkit-peers`. The installer needs only the standard library of Python
3.11 or newer. It can be run again at any time: it keeps what is installed. If a peer cannot be installed, it says why, installs
the others, and ends with exit code 1. README.md beside this file says what each peer is for.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = {"wrk": "wrk", "nginx": "nginx-light", "h2load": "nghttp2-client", "nghttpd": "nghttp2-server"}
PERF_ANALYZER, TRITONCLIENT, PYTRITON = "perf-analyzer==2.60.0", "tritonclient[grpc,http]==2.73.0", "nvidia-pytriton==0.7.0"
# perf_analyzer needs this C library; the packages of NEWER_DEBIAN provide it, and the program's other libraries
NEEDED_GLIBC = (2, 38)
NEWER_DEBIAN, RUNTIME_PACKAGES = "trixie", ("libc6", "libgcc-s1", "libssl3t64", "libstdc++6", "libzstd1", "zlib1g")
# Triton's Python backend is built for each of these, and the NumPy below 2 that it needs has wheels for them
TRITON_PYTHONS = ((3, 9), (3, 10), (3, 11), (3, 12))

_DESCRIBE_PYTHON = """
import json, os, sys, sysconfig
variable, version = sysconfig.get_config_var, "%d.%d" % sys.version_info[:2]
file = os.path.join(variable("LIBDIR") or "", "libpython%s.so.1.0" % version)
print(json.dumps([sys.executable, sys.version_info[:2], file if os.path.exists(file) else None]))
"""


class MissingError(Exception):
    """A requirement is missing or a step failed; the message is a sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A Python on this machine; `library` is its shared libpython, None if it was built without."""

    executable: str
    version: tuple[int, int]
    library: pathlib.Path | None


@dataclasses.dataclass(frozen=True)
class Peer:
    """A peer to check at the end: a command whose output matches `pattern`, with the version as its only group."""

    name: str
    path: pathlib.Path | None
    command: tuple[str, ...]
    pattern: str
    version: str = ""
    """The version to show if the program itself does not report the right one."""


def peers_folder(given: pathlib.Path | None = None, environ: Mapping[str, str] = os.environ) -> pathlib.Path:
    """The folder of the peers: the argument, else PERFKIT_PEERS, else the user's cache."""
    return (given or pathlib.Path(environ.get("PERFKIT_PEERS") or "~/.cache/perfkit-peers")).expanduser().absolute()


def perf_analyzer_path(folder: pathlib.Path | None = None) -> pathlib.Path:
    """perf_analyzer's launcher in the folder of the peers, whether it is installed or not."""
    return peers_folder(folder) / "bin" / "perf_analyzer"


def parse_glibc(text: str | None) -> tuple[int, int] | None:
    """Reads `glibc 2.36` as (2, 36); None for another C library."""
    found = re.fullmatch(r"glibc (\d+)\.(\d+)(?:\..*)?", text or "")
    return (int(found[1]), int(found[2])) if found else None


def choose_runtime(glibc: tuple[int, int] | None, distribution: str) -> str | None:
    """The Debian release whose C library perf_analyzer runs with; None if the system's own is new enough.

    Raises MissingError if the system's is too old and the system is not Debian.
    """
    if glibc is not None and glibc >= NEEDED_GLIBC:
        return None
    if glibc is None or distribution != "debian":
        present = "another C library" if glibc is None else "glibc {}.{}".format(*glibc)
        needed = "{}.{}".format(*NEEDED_GLIBC)
        raise MissingError(f"it needs glibc {needed}, and this system has {present}: use Debian, or a system with a newer glibc")
    return NEWER_DEBIAN


def debian_mirror(sources: Iterable[str]) -> str | None:
    """The URL of the first archive of Debian itself in APT's source lists, in either of their formats."""
    for text in sources:
        lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        for stanza in re.split(r"\n[ \t]*\n", lines):
            if re.search(r"(?im)^Enabled:\s*(no|false|off|0)\b", stanza):
                continue
            found = re.findall(r"(?m)^deb[ \t]+(?:\[[^\]]*\][ \t]+)?(\S+)", stanza)
            for value in re.findall(r"(?im)^URIs:(.*(?:\n[ \t].*)*)", stanza):
                found += value.split()
            for address in found:
                if address.rstrip("/").endswith("/debian"):
                    return str(address)
    return None


def missing_packages(present: Callable[[str], object], *, has_venv: bool) -> list[str]:
    """The Debian packages to install; `present` says whether a command is installed."""
    missing = [package for command, package in PACKAGES.items() if not present(command)]
    return missing if has_venv else [*missing, "python3-venv"]


def choose_python(candidates: Sequence[Interpreter]) -> Interpreter:
    """The first candidate that can run Triton's Python backend; raises MissingError with the reason for each."""
    reasons = []
    for python in candidates:
        if python.version not in TRITON_PYTHONS:
            reasons.append(f"{python.executable} is Python {python.version[0]}.{python.version[1]}")
        elif python.library is None:
            reasons.append(
                f"{python.executable} has no shared libpython (Debian has it as libpython{python.version[0]}.{python.version[1]})"
            )
        else:
            return python
    first, last = (".".join(map(str, version)) for version in (TRITON_PYTHONS[0], TRITON_PYTHONS[-1]))
    raise MissingError(
        f"Triton's Python backend needs a Python {first} to {last} with a shared libpython: {'; '.join(reasons)}. Name one with --python"
    )


def find_command(name: str) -> str | None:
    """The path of a command; servers are often in a folder of root's PATH only."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"]))


class Installer:
    """The steps. Each returns whether there was anything to do, and raises MissingError if it fails."""

    def __init__(self, folder: pathlib.Path, python: str | None, mirror: str | None) -> None:
        self._folder, self._python, self._mirror = folder, python, mirror
        self._clients = folder / "venv" / "bin" / "python"

    def debian_packages(self) -> bool:
        """Installs wrk, nginx, h2load, nghttpd, and the package that Python's `venv` needs."""
        packages = missing_packages(find_command, has_venv=importlib.util.find_spec("ensurepip") is not None)
        if not packages:
            return False
        apt = find_command("apt-get")
        if apt is None:
            raise MissingError(
                f"there is no apt-get: install {', '.join(packages)} (Debian's names) with this system's package manager, then run this again"
            )
        if os.geteuid() != 0:
            raise MissingError(f"only root may install packages: run `apt-get install {' '.join(packages)}` as root, then run this again")
        _say(f"installing {', '.join(packages)} with apt-get")
        _run(apt, "update", "-q")
        _run(apt, "install", "-y", "-q", "--no-install-recommends", *packages, DEBIAN_FRONTEND="noninteractive")
        return True

    def tritonclient(self) -> bool:
        """Installs tritonclient in a virtual environment."""
        if self._clients.exists() and _succeeds(str(self._clients), "-c", "import tritonclient.grpc, tritonclient.http"):
            return False
        _say(f"installing {TRITONCLIENT} in {self._folder / 'venv'}")
        _make_environment(sys.executable, self._folder / "venv")
        _pip(self._clients, "install", TRITONCLIENT)
        return True

    def perf_analyzer(self) -> bool:
        """Unpacks the program from its wheel, and writes a launcher that gives it the C library it was built for."""
        launcher, target = perf_analyzer_path(self._folder), self._folder / "perf_analyzer"
        if launcher.exists():
            return False
        _only_x86_64()
        release = choose_runtime(parse_glibc(os.confstr("CS_GNU_LIBC_VERSION")), platform.freedesktop_os_release().get("ID", ""))
        if not self._clients.exists():
            raise MissingError("its wheel is unpacked with the pip of tritonclient's environment, which is missing")
        _say(f"installing {PERF_ANALYZER}")
        # the wheel's tag names the newer C library: pip accepts it only with these options
        tags = ("--platform=manylinux_2_38_x86_64", "--python-version=3.12", "--only-binary=:all:")
        _pip(self._clients, "install", "--no-deps", "--upgrade", *tags, f"--target={target}", PERF_ANALYZER)
        program = target / "perf_analyzer" / "bin" / "perf_analyzer"
        program.chmod(0o755)
        if release is None:
            _write_launcher(launcher, f'exec "{program}" "$@"')
            return True
        _say(f"downloading Debian {release}'s C library for it")
        libraries = self._unpack_runtime(release)
        _write_launcher(launcher, f'exec "{libraries}/ld-linux-x86-64.so.2" --library-path "{libraries}" "{program}" "$@"')
        return True

    def triton(self) -> bool:
        """Installs Triton from pytriton's wheel, with the Python backend for a Python of this machine."""
        launcher = self._folder / "bin" / "tritonserver"
        if launcher.exists():
            return False
        _only_x86_64()
        names = [self._python] if self._python else [sys.executable, find_command("python3"), "/usr/bin/python3"]
        python = choose_python([_describe_python(name) for name in dict.fromkeys(names) if name])
        assert python.library is not None
        _say(f"installing {PYTRITON} for {python.executable}, several hundred megabytes")
        environment = self._folder / "triton-venv"
        _make_environment(python.executable, environment)
        # of pytriton's requirements, its server uses NumPy only
        _pip(environment / "bin" / "python", "install", "--no-deps", PYTRITON)
        _pip(environment / "bin" / "python", "install", "numpy<2")
        version = ".".join(map(str, python.version))
        packages = environment / "lib" / f"python{version}" / "site-packages"
        server = packages / "pytriton" / "tritonserver"
        for file in (server / "python_backend_stubs" / version).iterdir():
            shutil.copy2(file, server / "backends" / "python" / file.name)
        addresses = " ".join(f"--{kind}-address=127.0.0.1" for kind in ("http", "grpc", "metrics"))
        _write_launcher(
            launcher,
            f'export LD_LIBRARY_PATH="{python.library.parent}:{packages}/nvidia_pytriton.libs"',
            f'export PYTHONPATH="{packages}" PATH="{environment}/bin:$PATH"',
            f'exec "{server}/bin/tritonserver" --backend-directory="{server}/backends" {addresses} "$@"',
        )
        return True

    def _unpack_runtime(self, release: str) -> pathlib.Path:
        """Unpacks a newer Debian's runtime libraries in a folder that the system itself does not use."""
        apt, dpkg = find_command("apt-get"), find_command("dpkg")
        mirror = self._mirror or debian_mirror(_apt_sources())
        if apt is None or dpkg is None:
            raise MissingError("downloading a newer C library needs apt-get and dpkg, which are missing")
        if mirror is None:
            raise MissingError("APT's source lists contain no Debian archive: give one with --debian-mirror")
        runtime = self._folder / "runtime"
        for name in ("lists/partial", "cache/archives/partial", "debs", "root"):
            (runtime / name).mkdir(parents=True, exist_ok=True)
        (runtime / "sources.list").write_text(f"deb {mirror} {release} main\n", encoding="utf-8")
        # separate lists and caches: the system's packages stay those of its own release
        places = {"Dir::Etc::SourceList": runtime / "sources.list", "Dir::Etc::SourceParts": "/dev/null",
                  "Dir::State::Lists": runtime / "lists", "Dir::Cache": runtime / "cache", "APT::Sandbox::User": "root"}  # fmt: skip
        options = [f"-o{key}={value}" for key, value in places.items()]
        _run(apt, *options, "update", "-q")
        _run(apt, *options, "download", "-q", *RUNTIME_PACKAGES, cwd=runtime / "debs")
        for package in sorted((runtime / "debs").glob("*.deb")):
            _run(dpkg, "-x", str(package), str(runtime / "root"))
        return runtime / "root" / "usr" / "lib" / "x86_64-linux-gnu"


def installed_peers(folder: pathlib.Path, *, with_triton: bool) -> list[Peer]:
    """The peers to check, in the table's order."""

    def of_system(name: str, option: str, pattern: str) -> Peer:
        path = find_command(name)
        return Peer(name, pathlib.Path(path) if path else None, (path or name, option), pattern)

    python, analyzer = folder / "venv" / "bin" / "python", perf_analyzer_path(folder)
    ask_client = "import importlib.metadata as m, tritonclient.grpc, tritonclient.http; print('version', m.version('tritonclient'))"
    ask_triton = (sys.executable, "-m", "benchmarks.peers.triton", "--check", f"--peers={folder}")
    peers = [
        of_system("wrk", "--version", r"wrk (?:debian/)?(\S+)"),
        of_system("nginx", "-v", r"nginx/(\S+)"),
        of_system("h2load", "--version", r"nghttp2/(\S+)"),
        of_system("nghttpd", "--version", r"nghttp2/(\S+)"),
        Peer("perf_analyzer", analyzer, (str(analyzer), "--version"), r"Perf Analyzer Version (\S+)", _unpacked_version(folder)),
        Peer("tritonclient", python, (str(python), "-c", ask_client), r"version (\S+)"),
    ]
    return [*peers, Peer("Triton", folder / "bin" / "tritonserver", ask_triton, r"Triton (\S+) answers")] if with_triton else peers


def check(peer: Peer) -> str | None:
    """The version that a peer reports; None if it does not answer."""
    if peer.path is None or not peer.path.exists():
        return None
    try:
        # the exit code does not matter: wrk prints its version and ends with 1
        done = subprocess.run(peer.command, check=False, capture_output=True, text=True, timeout=120, cwd=ROOT, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(peer.pattern, done.stdout + done.stderr)
    return (peer.version or found[1]) if found else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the steps, then the checks; the exit code is 1 if anything is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, help="default: $PERFKIT_PEERS, or ~/.cache/perfkit-peers")
    parser.add_argument("--no-triton", action="store_true", help="leave out Triton itself, the largest peer")
    parser.add_argument("--python", help="the Python for Triton's Python backend (default: this one, or the system's)")
    parser.add_argument("--debian-mirror", metavar="URL", help="archive of Debian packages (default: the one in APT's source lists)")
    options = parser.parse_args(arguments)
    folder = peers_folder(options.folder)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    installer = Installer(folder, options.python, options.debian_mirror)
    steps = {"Debian packages": installer.debian_packages, "tritonclient": installer.tritonclient, "perf_analyzer": installer.perf_analyzer}
    if options.no_triton:
        _say("Triton is skipped (--no-triton)")
    else:
        steps["Triton"] = installer.triton
    is_complete = True
    for name, step in steps.items():
        try:
            _say(f"{name}: {'installed' if step() else 'already installed'}")
        except MissingError as error:
            is_complete = False
            sys.stderr.write(f"install: {name}: {error}.\n")
    rows = []
    for peer in installed_peers(folder, with_triton=not options.no_triton):
        version = check(peer)
        is_complete = is_complete and version is not None
        rows.append((peer.name, version or ("does not answer" if peer.path and peer.path.exists() else "missing"), str(peer.path or "–")))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    print("\n".join(f"{name:{widths[0]}}  {version:{widths[1]}}  {path}" for name, version, path in rows))
    return 0 if is_complete else 1


def _say(text: str) -> None:
    print(f"install: {text}", flush=True)


def _run(*command: str, cwd: pathlib.Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise MissingError(f"`{' '.join(command).splitlines()[0]}` failed: {last}")
    return done.stdout


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


def _pip(python: pathlib.Path, *arguments: str) -> None:
    _run(str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def _make_environment(python: str, folder: pathlib.Path) -> None:
    """Makes a virtual environment, replacing one that an unfinished installation left behind."""
    _run(python, "-m", "venv", "--clear", str(folder))


def _describe_python(name: str) -> Interpreter:
    try:
        executable, version, library = json.loads(_run(name, "-c", _DESCRIBE_PYTHON))
    except OSError as error:
        raise MissingError(f"{name} cannot be run as a Python: {error.strerror}") from None
    return Interpreter(executable, (version[0], version[1]), None if library is None else pathlib.Path(library))


def _apt_sources() -> list[str]:
    folder = pathlib.Path("/etc/apt")
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list")), *sorted(folder.glob("sources.list.d/*.sources"))]
    return [file.read_text(encoding="utf-8") for file in files if file.is_file()]


def _unpacked_version(folder: pathlib.Path) -> str:
    """The version of perf_analyzer's wheel: the program itself reports 0.0.0."""
    names = [path.name for path in (folder / "perf_analyzer").glob("perf_analyzer-*.dist-info")]
    return names[0].removeprefix("perf_analyzer-").removesuffix(".dist-info") if names else ""


def _only_x86_64() -> None:
    if platform.machine() != "x86_64":
        raise MissingError(f"its packages are for x86-64, and this machine is {platform.machine()}")


def _write_launcher(path: pathlib.Path, *lines: str) -> None:
    """Writes a launcher as the last act of a step: its presence means that the step is complete."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
