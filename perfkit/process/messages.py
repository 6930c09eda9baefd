"""Messages between perfkit and its child processes, each behind its length, through stdin and stdout: pickled values, or bytes as they are.

Blocking files are read here, those of an event loop in `message_stream`.
"""

import os
import pickle
import sys
from typing import IO, Any, BinaryIO

LENGTH_BYTES = 8


def framed(body: bytes) -> bytes:
    """Bytes as `load_frame` and `read_frame` read them."""
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def load_frame(file: IO[bytes]) -> bytes:
    """The next bytes; raises EOFError at the end of the file, also within them."""
    return _read_exactly(file, int.from_bytes(_read_exactly(file, LENGTH_BYTES), "big"))


def message_bytes(message: object) -> bytes:
    """A message as `load_message` and `read_message` read it."""
    return framed(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def load_message(file: IO[bytes]) -> Any:
    """The next message; raises EOFError at the end of the file, also within a message."""
    return pickle.loads(load_frame(file))  # noqa: S301 - from perfkit's own process, through a private pipe


def claim_stdout() -> BinaryIO:
    """Takes stdout for messages; what libraries print goes to stderr from then on."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")  # buffered: one write to an unbuffered file may write a part only
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out


def _read_exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data
