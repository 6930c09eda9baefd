"""The file of `--profile-export-file`: every request of the measured windows, as perf_analyzer writes it."""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from perfkit.errors import StorageError, UsageError
from perfkit.measurement.reply_spool import ReplySpool, SpooledRequest
from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Datatype, Tensor, tensor_to_array

_CACHED_CHARACTERS = 64 * 2**20


class ExportFile:
    """Writes the export of a sweep, an experiment at a time; a context manager, which ends the file unless an error is raised.

    Until then it is written beside its place, so that a half-written file never has its name. Failed requests are left out, since the format
    has no field for them.
    """

    def __init__(self, path: pathlib.Path, version: str) -> None:
        """`version` is that of perf_analyzer, and what wrote the file. Raises UsageError if something has this path, or no file can be made there."""
        self._path, self._version = path, version
        if os.path.lexists(path):
            raise UsageError("Failed to parse --profile-export-file. Path must not already exist.")
        self._partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        try:
            self._file = self._partial.open("w", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--profile-export-file {path}: cannot be written: {error.strerror}") from None
        self._file.write('{"experiments":[')
        self._separator = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        is_whole = False
        try:
            if kind is None:
                with self._writing():
                    self._file.write(f'],"version":{_json(self._version)},"service_kind":"triton","endpoint":""}}')
                    self._file.close()
                    is_whole = True
                    if os.path.lexists(self._path):
                        raise StorageError(f"--profile-export-file {self._path}: something else has this path by now; see {self._partial}")
                    self._partial.rename(self._path)
        finally:
            if not is_whole:
                with contextlib.suppress(OSError):
                    self._file.close()
                self.remove_partial()

    def remove_partial(self) -> None:
        """Removes what is written of a file that has not ended."""
        self._partial.unlink(missing_ok=True)

    def add(self, mode: Literal["concurrency", "request_rate"], value: float, spool: ReplySpool, window_ns: int | None = None) -> None:
        """Adds one load value's requests: an integer for a concurrency, a float for a rate; nothing if there are none.

        `window_ns` is the length of the windows where a run of the spool can have several; otherwise each is one. Raises StorageError and
        ProtocolError; nothing is added then.
        """
        with self._writing():
            begin, separator = self._file.tell(), f'{self._separator}{{"experiment":{_json({"mode": mode, "value": value})},"requests":['
            try:
                for text in _requests(spool):
                    self._file.write(separator + text)
                    separator = ","
                if separator == ",":
                    self._file.write(f'],"window_boundaries":{_json(_boundaries(spool.windows_ns(), window_ns))}}}')
                    self._separator = ","
            except BaseException:
                self._file.seek(begin)
                self._file.truncate()
                raise

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"--profile-export-file {self._path}: cannot be written: {error.strerror}") from None


def _requests(spool: ReplySpool) -> Iterator[str]:
    """The JSON of each request; the inputs, which are few and repeated, are encoded once as far as memory allows."""
    inputs, characters = dict[int, str](), 0
    for one in spool.requests():
        text = inputs.get(id(one.request))
        if text is None:
            text = _json(_tensors(one.request.inputs))
            if characters + len(text) <= _CACHED_CHARACTERS:
                inputs[id(one.request)] = text
                characters += len(text)
        yield _request(one, text)


def _request(one: SpooledRequest, inputs: str) -> str:
    sequence = f'"sequence_id":{one.sequence_id},' if one.sequence_id and isinstance(one.sequence_id, int) else ""
    instants = [at_ns for at_ns, _ in one.responses]
    outputs = _json(_outputs([response for _, response in one.responses]))
    return (
        f'{{"timestamp":{one.started_ns},{sequence}"request_inputs":{inputs},'
        f'"response_timestamps":{_json(instants)},"response_outputs":{outputs}}}'
    )


def _outputs(responses: Sequence[InferResponse | None]) -> list[dict[str, Any]]:
    """The outputs of each response; those of an empty final one are the outputs of the others, empty."""
    known = {tensor.name: "" for response in responses if response is not None for tensor in response.outputs}
    return [known if response is None or not response.outputs else _tensors(response.outputs) for response in responses]


def _tensors(tensors: Sequence[Tensor]) -> dict[str, Any]:
    return {tensor.name: exported_value(tensor) for tensor in tensors}


def exported_value(tensor: Tensor) -> Any:
    """A tensor's values as the export has them; shape and datatype are lost.

    One number stands alone, several in a flat list, and BYTES are one string without the first element's length. None for FP16, BF16 and
    numbers that are not finite, and an empty string for no data, as that of tensors in shared memory.
    """
    raw, datatype = tensor.raw, tensor.datatype
    if not datatype.has_json_form:
        return None
    if not len(raw):
        return ""
    if datatype is Datatype.BYTES:
        return bytes(raw[4:]).decode(errors="replace")
    array = tensor_to_array(dataclasses.replace(tensor, shape=(8 * len(raw) // (datatype.element_bits or 8),)))
    values: list[Any] = array.tolist()
    if datatype.is_float and not np.isfinite(array).all():
        values = [value if math.isfinite(value) else None for value in values]
    return values[0] if len(values) == 1 else values


def _boundaries(runs_ns: Sequence[tuple[int, int]], window_ns: int | None) -> list[int]:
    """The start of the first window, the end of each, and a start where one does not begin at the end of the one before."""
    boundaries = list[int]()
    for start_ns, end_ns in runs_ns:
        windows = max(round((end_ns - start_ns) / window_ns), 1) if window_ns else 1
        ends_ns = [start_ns + (end_ns - start_ns) * number // windows for number in range(1, windows + 1)]
        boundaries += ends_ns if boundaries and boundaries[-1] == start_ns else (start_ns, *ends_ns)
    return boundaries


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
