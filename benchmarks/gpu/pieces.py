"""Files cut into pieces of limited size, each with its SHA-256, and put together again. It uses only the standard library.

A piece is a numbered folder. A file that fits into one stays whole; one above the limit is cut over several. Each piece holds a copy of the
manifest, so pieces can travel one by one, and what has arrived can be checked at any time.
"""

import dataclasses
import hashlib
import json
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

MANIFEST = "manifest.json"
_BLOCK_BYTES = 1 << 20


class PiecesError(Exception):
    """The pieces cannot be read or made; the message is a sentence for the user."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A file in a piece: a whole file, or a part of one."""

    path: str
    """Relative to the folder of the pieces, such as `02/name.whl.part1`."""
    size_bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class CutFile:
    """A file and its parts, in order."""

    name: str
    size_bytes: int
    sha256: str
    parts: tuple[Part, ...]


def split(files: Sequence[pathlib.Path], folder: pathlib.Path, limit_bytes: int) -> list[CutFile]:
    """Writes files as pieces of at most `limit_bytes` (without the manifest) into a new folder; the small files come first.

    Raises PiecesError if the folder is not empty, or the limit is not positive.
    """
    if limit_bytes <= 0:
        raise PiecesError(f"a piece must hold at least one byte, found {limit_bytes}")
    if folder.exists() and any(folder.iterdir()):
        raise PiecesError(f"{folder} is not empty: name a new folder, so that no older piece is mistaken for one of these")
    cut, piece, free_bytes = list[CutFile](), 0, 0
    for file in sorted(files, key=lambda file: (file.stat().st_size, file.name)):
        size_bytes, parts = file.stat().st_size, list[Part]()
        with file.open("rb") as source:
            while not parts or source.tell() < size_bytes:
                is_whole = size_bytes <= limit_bytes
                if piece == 0 or free_bytes < (size_bytes if is_whole else 1):
                    piece, free_bytes = piece + 1, limit_bytes
                name = file.name if is_whole else f"{file.name}.part{len(parts) + 1}"
                parts.append(_write_part(source, folder, f"{piece:02}/{name}", free_bytes))
                free_bytes -= parts[-1].size_bytes
        cut.append(CutFile(file.name, size_bytes, sha256_of(file), tuple(parts)))
    manifest = json.dumps({"files": [dataclasses.asdict(one) for one in cut]}, indent=1) + "\n"
    for number in range(1, piece + 1):
        (folder / f"{number:02}" / MANIFEST).write_text(manifest, encoding="utf-8")
    return cut


def _write_part(source: BinaryIO, folder: pathlib.Path, path: str, limit_bytes: int) -> Part:
    """Copies the next bytes of an open file, at most `limit_bytes`, into a part."""
    target, digest, left_bytes = folder / path, hashlib.sha256(), limit_bytes
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as part:
        while block := source.read(min(_BLOCK_BYTES, left_bytes)):
            part.write(block)
            digest.update(block)
            left_bytes -= len(block)
    return Part(path, limit_bytes - left_bytes, digest.hexdigest())


def read_manifest(folder: pathlib.Path) -> list[CutFile]:
    """The files that the pieces in a folder make up. Raises PiecesError if no piece is there, or the pieces are of different sets."""
    texts = {path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"*/{MANIFEST}"))}
    if len(texts) != 1:
        what = "holds pieces of different sets" if texts else f"holds no piece (no folder in it has a {MANIFEST})"
        raise PiecesError(f"{folder} {what}")
    return [_cut_file(one) for one in json.loads(texts.pop())["files"]]


def _cut_file(document: dict[str, Any]) -> CutFile:
    return CutFile(document["name"], document["size_bytes"], document["sha256"], tuple(Part(**part) for part in document["parts"]))


def faults(file: CutFile, folder: pathlib.Path) -> Iterator[str]:
    """What is wrong with a file's parts in a folder of pieces, a sentence for each; nothing if it can be put together."""
    for part in file.parts:
        path = folder / part.path
        if not path.exists():
            yield f"{part.path} is missing"
        elif path.stat().st_size != part.size_bytes:
            yield f"{part.path} has {path.stat().st_size:,} bytes instead of {part.size_bytes:,}"
        elif sha256_of(path) != part.sha256:
            yield f"{part.path} has another SHA-256 than in {MANIFEST}"


def join(file: CutFile, folder: pathlib.Path, into: pathlib.Path) -> pathlib.Path:
    """Puts a file together from its parts, into another folder. Raises PiecesError if it is not what was cut."""
    into.mkdir(parents=True, exist_ok=True)
    whole = into / file.name
    with whole.open("wb") as target:
        for part in file.parts:
            with (folder / part.path).open("rb") as source:
                shutil.copyfileobj(source, target, _BLOCK_BYTES)
    if sha256_of(whole) != file.sha256:
        whole.unlink()
        raise PiecesError(f"{file.name} put together has another SHA-256 than in {MANIFEST}")
    return whole


def sha256_of(file: pathlib.Path) -> str:
    """A file's SHA-256, in hexadecimal digits."""
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
