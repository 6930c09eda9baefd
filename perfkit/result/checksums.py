"""The checksums of a result folder's data: written last by a run, in the format of `sha256sum`, and verified whenever a file is read.

They find damage and edits, not forgery: who can change a file can change its checksum.
"""

import contextlib
import hashlib
import pathlib
import re
from collections.abc import Iterable

from perfkit.errors import ResultError
from perfkit.input_file import open_input
from perfkit.result.json_file import read_bytes
from perfkit.result.output_folder import write_whole

CHECKSUM_FILE = "checksums.sha256"
_LARGEST_BYTES = 2**20
_TEXT_SUFFIXES = (".json", ".hlog", ".csv")
_LINE = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?P<name>[^/\\\0]{1,255})")


def write_checksums(folder: pathlib.Path, names: Iterable[str]) -> None:
    """Writes the checksums of those files that exist, atomically; raises OSError."""
    lines = [f"{digest_of(folder / name)}  {name}\n" for name in names if (folder / name).is_file()]
    write_whole(folder / CHECKSUM_FILE, "".join(lines))


def discard_checksums(folder: pathlib.Path) -> None:
    """Removes the checksums before a file is changed on purpose; raises OSError."""
    (folder / CHECKSUM_FILE).unlink(missing_ok=True)


def verify(file: pathlib.Path, digest: str | None = None) -> None:
    """Raises ResultError if a file differs from its folder's checksums, or these do not list it; without checksums it passes.

    `digest` is that of the contents already read; without it the file is read here. Line ends of Windows, which git can put into text
    files, are no difference.
    """
    known = _read_checksums(file.parent)
    if known is None:
        return
    if file.name not in known:
        raise ResultError(f"{file}: {CHECKSUM_FILE} does not list this file, so it is not of this run; {_remedy(file.parent)}")
    expected = known[file.name]
    if (digest or digest_of(file)) != expected and not (file.suffix in _TEXT_SUFFIXES and _digest_of_lines(file) == expected):
        raise ResultError(f"{file}: the file differs from its checksum in {CHECKSUM_FILE}: damaged, or edited; {_remedy(file.parent)}")


def digest_of(file: pathlib.Path) -> str:
    """The SHA-256 digest of a regular file; raises OSError."""
    with open_input(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest_of_lines(file: pathlib.Path) -> str:
    """The digest of a text file with the line ends that perfkit writes; raises OSError."""
    digest = hashlib.sha256()
    with open_input(file) as stream:
        for line in stream:
            digest.update(line[:-2] + b"\n" if line.endswith(b"\r\n") else line)
    return digest.hexdigest()


def unverified_note(path: pathlib.Path) -> str:
    """A sentence about a result, its folder or file, that has no checksums; empty if it has, and for anything else."""
    with contextlib.suppress(OSError, ValueError):
        folder = path if path.is_dir() else path.parent
        is_result = (folder / "result.json").is_file() if path.is_dir() else path.name == "result.json"
        if is_result and not (folder / CHECKSUM_FILE).exists():
            return f"{folder} has no {CHECKSUM_FILE}, as unfinished results: its files are read unverified"
    return ""


def _read_checksums(folder: pathlib.Path) -> dict[str, str] | None:
    file = folder / CHECKSUM_FILE
    try:
        text = read_bytes(file, _LARGEST_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ResultError(f"{file}: cannot be read: {error}; {_remedy(folder)}") from None
    digests: dict[str, str] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None or match["name"] in digests:
            raise ResultError(f"{file}:{number}: not a line of sha256sum, or a file listed twice; {_remedy(folder)}")
        digests[match["name"]] = match["digest"]
    return digests


def _remedy(folder: pathlib.Path) -> str:
    return f"restore it, or remove {folder / CHECKSUM_FILE} to read the folder unverified"
