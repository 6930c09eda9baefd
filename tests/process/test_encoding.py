"""Messages as bytes: every declared value comes back equal, and no bytes make anything but declared values."""

import collections
import contextlib
import dataclasses
import enum
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulated_fleet import is_same, poisson_arrivals, record, simulated_replies
from perfkit.errors import MeasurementError, ModelMismatchError, PerfkitError, ServerFailedError
from perfkit.fleet.dask_machine import DaskTask
from perfkit.fleet.messages import OF_DRIVER, OF_MACHINE, FromWorkers, Hello, Ping, Pong, StartWorkers, WorkersEnded
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.load_plan import OpenPlan
from perfkit.process.encoding import Encoding, MalformedError, StandIn
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor
from perfkit.transport.base import ConnectionCounts, ConnectTimes
from perfkit.workers.messages import Piece, Ready
from tests.workers.test_point import worker_spec


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    first: int
    second: str


@dataclasses.dataclass
class Everything:
    number: int
    real: float
    text: str
    flag: bool
    content: bytes | bytearray | memoryview
    colour: Colour
    choice: Literal["a", "b"]
    pairs: tuple[Pair, ...]
    both: tuple[int, str]
    names: frozenset[str]
    listed: Sequence[float]
    counts: collections.Counter[Colour]
    mixed: Mapping[str, bool | int | float | str]
    array: npt.NDArray[np.int64]
    maybe: "Everything | None" = None


floats = st.floats(allow_nan=False)
numbers = st.sampled_from([0, 8, 16, 32, 63]).flatmap(lambda bits: st.integers(-(2**bits if bits == 63 else 0), 2**bits - (bits == 63)))
arrays = st.lists(numbers, max_size=6).map(lambda values: np.array(values, dtype=np.int64).reshape(len(values) % 2 or 2, -1))
fields = {
    "number": st.integers(),
    "real": floats | st.just(math.inf),
    "text": st.text(st.characters(), max_size=20),
    "flag": st.booleans(),
    "content": st.binary(max_size=20),
    "colour": st.sampled_from(Colour),
    "choice": st.sampled_from(["a", "b"]),
    "pairs": st.lists(st.builds(Pair, st.integers(), st.text(max_size=5)), max_size=3).map(tuple),
    "both": st.tuples(st.integers(), st.text(max_size=5)),
    "names": st.frozensets(st.text(max_size=5), max_size=3),
    "listed": st.lists(floats, max_size=3).map(tuple),
    "counts": st.dictionaries(st.sampled_from(Colour), st.integers(1, 9)).map(collections.Counter),
    "mixed": st.dictionaries(st.text(max_size=5), st.booleans() | st.integers() | floats | st.text(max_size=5), max_size=3),
    "array": arrays,
}
everything = st.recursive(st.builds(Everything, **fields), lambda inner: st.builds(Everything, **fields, maybe=inner), max_leaves=2)
ENCODING = Encoding(Everything, {})


@given(everything)
def test_every_value_of_a_declared_type_comes_back_equal_and_of_its_type(value):
    back = ENCODING.decoded(ENCODING.encoded(value))
    assert is_same(value, back)
    assert [type(one) for one in value.mixed.values()] == [type(one) for one in back.mixed.values()]
    assert back.array.flags.writeable


@given(everything, st.data())
def test_a_message_that_is_cut_or_changed_is_malformed_or_another_value_of_the_type(value, data):
    whole = ENCODING.encoded(value)
    with pytest.raises(MalformedError):
        ENCODING.decoded(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(MalformedError):
        ENCODING.decoded(whole + b"\0")
    changed = bytearray(whole)
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        changed[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedError):
        assert type(ENCODING.decoded(changed)) is Everything


@given(st.binary(max_size=300))
@pytest.mark.parametrize("encoding", [ENCODING, OF_MACHINE, OF_DRIVER])
def test_any_bytes_are_malformed_or_a_message(encoding, body):
    with contextlib.suppress(MalformedError):
        assert encoding.encoded(encoding.decoded(body))


def _of_machine():
    point = record(simulated_replies(poisson_arrivals(100, 2, 1), 1), 2, 1)
    times = ConnectTimes()
    times.add(5)
    (own,) = point.point.workloads
    whole = dataclasses.replace(
        point.point, workloads=(dataclasses.replace(own, connections=ConnectionCounts(opened=1, connect_times=times)),)
    )
    messages: list[Any] = [Ready(), *point.live, *point.pieces, Piece(8, whole, is_last=True)]
    hello = Hello("alpha", "1", (0, 1), 9, None, None, DaskTask("r1", 3))
    return [hello, Pong(1, 2), *(FromWorkers(1, (one,)) for one in messages), FromWorkers(1, (*messages, WorkersEnded("so")))]


FROM_MACHINES = _of_machine()


@given(st.data())
def test_messages_of_a_machine_with_any_byte_changed_are_malformed_or_messages(data):
    body = bytearray(OF_MACHINE.encoded(data.draw(st.sampled_from(FROM_MACHINES))))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, min(len(body), 2000) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedError):
        assert type(OF_MACHINE.decoded(body)) in (Hello, Pong, FromWorkers)


@pytest.mark.parametrize("number", range(len(FROM_MACHINES)))
def test_what_a_machine_sends_comes_back_as_it_was(number):
    message = FROM_MACHINES[number]
    back = OF_MACHINE.decoded(OF_MACHINE.encoded(message))
    if isinstance(message, FromWorkers):
        assert len(back.messages) == len(message.messages)
        for one, other in zip(message.messages, back.messages, strict=True):
            assert is_same(_with_counted(one), _with_counted(other))
    else:
        assert back == message


def _with_counted(message):
    """A recording with its times to connect as counts, which are compared."""
    if not isinstance(message, Piece):
        return message
    point: Any = message.point
    own = [(one, dataclasses.replace(one.connections, connect_times=one.connections.connect_times.counts())) for one in point.workloads]
    workloads = tuple(dataclasses.replace(one, connections=counted) for one, counted in own)
    return dataclasses.replace(message, point=dataclasses.replace(point, workloads=workloads))


def test_what_the_driver_sends_comes_back_as_it_was_and_a_tensor_of_many_requests_is_sent_once():
    plan = OpenPlan(300, "poisson", Schedule("poisson", constant_rate(300), (2**70, 1)), 1.0, None)
    tensor = Tensor("x", Datatype.UINT8, (50_000,), bytes(range(250)) * 200)
    spec = worker_spec()
    requests = tuple(InferRequest("m", (tensor,), parameters={"number": number}) for number in range(100))
    (own,) = spec.workloads
    spec = dataclasses.replace(spec, workloads=(dataclasses.replace(own, requests=requests, load=plan),))
    order = StartWorkers(3, spec, (1, 3), 4)
    body = OF_DRIVER.encoded(order)
    assert OF_DRIVER.decoded(body) == order
    assert 50_000 < len(body) < 60_000


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ServerFailedError("it failed", last_lines=["so"]), "TargetError", "it failed; it said: so"),
        (ModelMismatchError("no", may_pass=True), "ModelMismatchError", "no"),
        (MeasurementError("why"), "MeasurementError", "why"),
    ],
)
def test_an_error_of_a_machine_is_one_of_a_known_class_with_its_text(error, kind, message):
    (back,) = OF_MACHINE.decoded(OF_MACHINE.encoded(FromWorkers(1, (error,)))).messages
    assert isinstance(back, PerfkitError)
    assert (type(back).__name__, str(back), back.may_pass) == (kind, message, error.may_pass)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (tuple[int, ...], struct.pack("<I", 2**32 - 1)),
        (npt.NDArray[np.int64], bytes([2]) + struct.pack("<II", 2**31, 2**31)),
        (npt.NDArray[np.int64], bytes([200])),
        (str, struct.pack("<I", 2) + b"\xff\xff"),
        (bytes, struct.pack("<I", 5)),
        (bool, b"\x02"),
        (Literal["a", "b"], b"\x02"),
        (frozenset[Everything], struct.pack("<I", 1)),
    ],
)
def test_what_announces_more_than_it_has_or_another_choice_is_malformed(kind, body):
    with pytest.raises(MalformedError):
        Encoding(kind, {}).decoded(body)


def test_a_message_that_is_nested_without_an_end_is_malformed():
    @dataclasses.dataclass
    class Nested:
        inner: "Nested | None"

    Nested.__annotations__["inner"] = Nested | None
    with pytest.raises(MalformedError):
        Encoding(Nested, {}).decoded(bytes(10**6))


class Secretive:
    pass


def test_only_plain_data_and_declared_values_are_sent():
    with pytest.raises(TypeError, match="is no plain data"):
        Encoding(tuple[Secretive, ...], {})
    with pytest.raises(TypeError, match="is no plain data"):
        Encoding(dict[str, Any], {})
    with pytest.raises(TypeError, match="is not of"):
        Encoding(Secretive | None, {Secretive: None}).encoded(Secretive())
    assert Encoding(Secretive, {Secretive: StandIn(str, repr, len)}).decoded(b"\3\0\0\0abc") == 3
    with pytest.raises(TypeError, match="is not of"):
        OF_MACHINE.encoded(Ping(1))


@pytest.mark.parametrize(("largest", "bytes_each"), [(255, 1), (256, 2), (2**16, 4), (2**32, 8), (-1, 8)])
def test_small_numbers_of_an_array_take_as_many_bytes_as_the_largest_needs(largest, bytes_each):
    encoding = Encoding(npt.NDArray[np.int64], {})
    values = np.array([0, largest, *range(98)])
    encoded = encoding.encoded(values)
    assert len(encoded) == 1 + 1 + 4 + 100 * bytes_each
    assert encoding.decoded(encoded).tolist() == values.tolist()
