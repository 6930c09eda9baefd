"""Files of others: devices without an end, large ones, and Parquet whose few bytes stand for many."""

import contextlib
import io
import pathlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.errors import PerfkitError, ScenarioError
from perfkit.history.accepted import read_accepted
from perfkit.input_file import LONGEST_LINE_BYTES, bounded_lines, open_input, read_bounded
from perfkit.parquet_file import open_parquet
from perfkit.perf_analyzer.command_line import read_intervals_us
from perfkit.result.json_file import read_json
from perfkit.result.telemetry_file import telemetry_frame
from perfkit.scenario.file import read_source
from perfkit.spans.formats import read_spans_file
from perfkit.trace.reader import read_trace
from server_stub.models.densenet import read_labels
from server_stub.options import read_tls_identity
from server_stub.repository.model_config import read_pbtxt

ENDLESS = pathlib.Path("/dev/zero")
READERS = {
    **{f"t{suffix}": read_trace for suffix in (".csv", ".jsonl", ".json", ".parquet")},
    "intervals": lambda file: read_trace(file, "request_intervals"),
    "perfkit-accepted.yaml": read_accepted,
    "s.yaml": read_source,
    "result.json": read_json,
    "spans.jsonl": read_spans_file,
    "labels.txt": read_labels,
    "config.pbtxt": lambda file: read_pbtxt(file, "m"),
    "cert.pem": lambda file: read_tls_identity(file, file),
    "folder/telemetry.csv": lambda file: telemetry_frame(file.parent),
    "folder/telemetry.parquet": lambda file: telemetry_frame(file.parent),
}


@pytest.mark.parametrize("name", READERS)
def test_a_device_without_an_end_is_refused_by_every_reader(tmp_path, name):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.symlink_to(ENDLESS)
    with pytest.raises(PerfkitError):
        READERS[name](file)


def test_a_device_has_no_intervals():
    with pytest.raises(OSError, match="no regular file"):
        read_intervals_us(str(ENDLESS))


def test_a_file_is_read_up_to_its_limit_and_a_pipe_too(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(bytes(2**20))
    assert read_bounded(file, 2**20) == bytes(2**20)
    with pytest.raises(OSError, match="larger than 0 MiB"):
        read_bounded(file, 2**20 - 1)
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_bounded(ENDLESS, 2**20, may_be_pipe=True)
    with pytest.raises(OSError, match="cannot be a file's name"):
        read_bounded(pathlib.Path("a\0b"), 1)


def test_a_file_that_does_not_say_its_size_is_read_whole():
    file = pathlib.Path("/proc/self/limits")
    assert file.stat().st_size == 0
    assert read_bounded(file, 2**20).decode() == file.read_text()
    with pytest.raises(OSError, match="larger than 0 MiB"):
        read_bounded(file, 100)


def test_lines_are_those_of_text_mode_and_a_longer_one_is_refused(tmp_path):
    file = tmp_path / "f"
    file.write_text("\ufeffa\n\nb c\r\nlast ä", encoding="utf-8", newline="")
    with open_input(file) as opened:
        assert list(bounded_lines(opened)) == ["a\n", "\n", "b c\r\n", "last ä"]
    file.write_bytes(b"x" * (LONGEST_LINE_BYTES + 1))
    with open_input(file) as opened, pytest.raises(OSError, match="a line of more than 16 MiB"):
        list(bounded_lines(opened))


def _recurring(tmp_path, columns):
    """A Parquet file of a few kilobytes whose texts recur in each of 8,192 rows: 6.5 GB."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file, text = tmp_path / "t.parquet", "x" * 800_000
    table = {name: pa.DictionaryArray.from_arrays(pa.array([0] * 8192, pa.int8()), pa.array([text])) for name in columns}
    parquet.write_table(pa.table({"timestamp_ns": pa.array(range(8192)), **table}), file, compression="zstd", store_schema=False)
    assert file.stat().st_size < 200_000
    return file, pa.default_memory_pool()


def test_a_text_that_recurs_in_each_row_is_kept_once(tmp_path):
    file, pool = _recurring(tmp_path, ["payload"])
    trace = read_trace(file)
    assert (trace.instants_ns.size, len(trace.contents)) == (8192, 1)
    assert pool.max_memory() < 2**28


def test_a_column_that_is_neither_numbers_nor_text_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"timestamp_ns": [1], "shapes": [[1] * 100_000]}), tmp_path / "t.parquet")
    with pytest.raises(ScenarioError, match="shapes: expected a column of numbers or text"):
        read_trace(tmp_path / "t.parquet")


def _with_page_size(file, size_bytes):
    """Sets what the first page's header says of its size. In Thrift's compact form, the first two fields are its type, 0, and that size."""
    data = file.read_bytes()
    assert data[4:7] == b"\x15\x00\x15"
    rest = 7
    while data[rest] & 128:
        rest += 1
    number, written = 2 * size_bytes, bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    file.write_bytes(data[:7] + bytes((*written, number)) + data[rest + 1 :])


@pytest.mark.parametrize("size_bytes", [2**31 - 1, 2**28 + 1])
def test_a_page_that_says_that_it_is_large_is_refused_before_memory_is_reserved_for_it(tmp_path, size_bytes):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file, pool = tmp_path / "t.parquet", pa.default_memory_pool()
    parquet.write_table(pa.table({"timestamp_ns": pa.array(range(1000))}), file, compression="zstd", use_dictionary=False)
    assert read_trace(file).instants_ns.size == 1000
    before = pool.max_memory()
    _with_page_size(file, size_bytes)
    with pytest.raises(ScenarioError, match=r"its pages are larger than 256 MiB"):
        read_trace(file)
    assert pool.max_memory() - before < 2**24


@pytest.mark.parametrize("options", [
    {}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"data_page_size": 100}, {"row_group_size": 77}, {"compression": "none"},
    {"row_group_size": 5}, {"data_page_size": 1, "write_batch_size": 1},
    {"write_page_checksum": True, "write_statistics": True, "write_page_index": True}, {"version": "1.0"},
    {"use_dictionary": False, "column_encoding": {"timestamp_ns": "DELTA_BINARY_PACKED", "payload": "PLAIN", "other": "PLAIN"}},
])  # fmt: skip
def test_the_pages_of_what_others_write_are_found_and_read(tmp_path, options):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file, texts = tmp_path / "t.parquet", [f"payload-{number % 300}" * 20 for number in range(5000)]
    (tmp_path / "p").mkdir()
    parquet.write_table(pa.table({"timestamp_ns": pa.array(range(5000)), "payload": texts, "other": [1.5] * 5000}), file, **options)
    with file.open("rb") as opened:
        names, batches = open_parquet(opened, ("timestamp_ns", "payload"))
        table = pa.Table.from_batches(batches)
    assert names == ["timestamp_ns", "payload", "other"]
    assert table.column("timestamp_ns").to_pylist() == list(range(5000))
    assert table.column("payload").to_pylist() == texts


def _varint(number):
    return bytes((number & 127 | 128, *_varint(number >> 7))) if number > 127 else bytes((number,))


def _one_page_for_all(extra, chunks):
    """A file written by hand, in Thrift's compact form: "timestamp_ns", and chunks of one row each that name the same page, with more fields in its header."""
    name = b"\x0ctimestamp_ns"
    header = b"\x15\x00\x15\x10\x15\x10\x2c\x15\x02\x15\x00\x15\x06\x15\x06\x00" + extra + b"\x00"
    column = b"\x15\x04\x19\x15\x00\x19\x18" + name + b"\x15\x00\x16\x02\x16\x10\x16" + _varint(2 * (len(header) + 8)) + b"\x26\x08\x00"
    group = b"\x19\x1c\x26\x08\x1c" + column + b"\x00\x16\x10\x16\x02\x00"
    schema = b"\x19\x2c\x48\x01r\x15\x02\x00\x15\x04\x25\x00\x18" + name + b"\x00"
    footer = b"\x15\x02" + schema + b"\x16" + _varint(2 * chunks) + b"\x19\xfc" + _varint(chunks) + group * chunks + b"\x00"
    return io.BytesIO(b"PAR1" + header + (7).to_bytes(8, "little") + footer + len(footer).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize(("extra", "chunks", "message"), [
    (b"\x11" * 60_000, 20, "have more than 1,000,000 values"),  # fields that are true, a byte each
    (b"\x19\xf3" + _varint(60_000) + bytes(60_000), 20, "have more than 1,000,000 values"),  # a list of bytes
    (b"\x18" + _varint(65_536) + bytes(65_536), 1, "there is no page at byte 4,"),  # a text
])  # fmt: skip
def test_a_page_header_that_takes_long_to_read_is_not_read_for_each_chunk_that_names_it(extra, chunks, message):
    pa = pytest.importorskip("pyarrow")
    names, batches = open_parquet(_one_page_for_all(b"\x11" * 5, chunks), ("timestamp_ns",))
    assert (names, pa.Table.from_batches(batches).to_pydict()) == (["timestamp_ns"], {"timestamp_ns": [7] * chunks})
    _, batches = open_parquet(_one_page_for_all(extra, chunks), ("timestamp_ns",))
    with pytest.raises(OSError, match=message):
        next(batches)


@pytest.fixture(scope="module")
def parquet_files():
    """The bytes of traces as several writers store them."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"timestamp_ns": list(range(200)), "payload": [f"p{number % 7}" for number in range(200)]})
    written = []
    for options in ({}, {"use_dictionary": False}, {"data_page_version": "2.0", "data_page_size": 200}, {"row_group_size": 50}):
        file = io.BytesIO()
        parquet.write_table(table, file, **options)
        written.append(file.getvalue())
    return written


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_parquet_file_is_read_or_refused_in_a_sentence(parquet_files, tmp_path, data):
    """pyarrow's own view of such a file's columns ends the process for some of them."""
    damaged = bytearray(data.draw(st.sampled_from(parquet_files)))
    for _ in range(data.draw(st.integers(1, 4))):
        from_end = data.draw(st.integers(1, len(damaged)) | st.integers(1, 700))
        damaged[-min(from_end, len(damaged))] = data.draw(st.integers(0, 255))
    file = tmp_path / "t.parquet"
    file.write_bytes(damaged)
    with contextlib.suppress(ScenarioError):
        read_trace(file)
