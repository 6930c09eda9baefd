"""Reading traces: every format, every unit of time, and the files of perf_analyzer's documentation."""

import csv
import io
import json
import pathlib
import tempfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.errors import ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.trace.reader import TimeColumn, read_trace
from perfkit.trace.writer import TraceRow, TraceWriter

S = 1_000_000_000
START_NS = 1_763_000_000_123_456_789


@pytest.fixture
def read(tmp_path):
    """Reads a text as a file of that name."""

    def read(name, text, *arguments, **options):
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_trace(file, *arguments, **options)

    return read


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("timestamp_ns", [START_NS, START_NS + S // 4, START_NS + 2 * S]),
        ("timestamp_us", [5, 250_005, 2_000_005]),
        ("timestamp_ms", [1000.5, 1250.5, 3000.5]),
        ("timestamp_s", [7, 7.25, 9]),
        ("timestamp", ["2026-01-31T23:59:59.5Z", "2026-01-31T23:59:59.750Z", "2026-02-01T01:00:01.5+01:00"]),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_instants_count_from_the_first_request_in_any_unit(read, name, column, values):
    lines = [column, *map(str, values)] if name == "t.csv" else [json.dumps({column: value}) for value in values]
    trace = read(name, "\n".join(lines))
    assert trace.instants_ns.tolist() == [0, S // 4, 2 * S]
    assert trace.period_ns == 3 * S  # a mean gap after the last one
    assert not trace.has_contents


PUBLISHED: dict[str, tuple[str, str, str, list[Any], TimeColumn]] = {
    "Azure LLM 2023": ("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens", "{},374,44", ["2023-11-16 18:15:46.6805900", "2023-11-16 18:15:46.9305900", "2023-11-16 18:15:48.6805900"], TimeColumn("TIMESTAMP", "iso")),
    "Azure Functions 2021": ("t.csv", "app,func,end_timestamp,duration", "a,f,{},0.07", [0.5, 0.75, 2.5], TimeColumn("end_timestamp", "s")),
    "BurstGPT": ("t.csv", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type", "{},ChatGPT,472,18,490,Conversation log", [5, 5.25, 7], TimeColumn("Timestamp", "s")),
    "Mooncake": ("t.jsonl", "", '{{"timestamp": {}, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}}', [27482, 27732, 29482], TimeColumn("timestamp", "ms")),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_public_traces_are_read_as_they_are_published_by_naming_their_column(read, name):
    file, header, row, values, column = PUBLISHED[name]
    text = "\n".join(filter(None, (header, *(row.format(value) for value in values))))
    assert read(file, text, column=column).instants_ns.tolist() == [0, S // 4, 2 * S]


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "iso"])
@pytest.mark.parametrize("name", ["when", "timestamp_ms"])
def test_a_timestamp_column_of_a_parquet_file_has_its_types_unit(tmp_path, name, unit):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    instants = pa.array([1_000_000, 1_250_000, 3_000_000], pa.timestamp("us"))
    parquet.write_table(pa.table({name: instants, "at": [1000, 1250, 3000]}), tmp_path / "t.parquet")
    for column in (TimeColumn(name, unit), TimeColumn("at", "ms"), *((None,) if name == "timestamp_ms" else ())):
        assert read_trace(tmp_path / "t.parquet", column=column).instants_ns.tolist() == [0, S // 4, 2 * S]


@pytest.mark.parametrize("values", [[1_700_000_000, 1_700_000_001], [1.5, 2.5], ["1700000000", "1700000001"], [None, None]])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_numbers_are_no_dates(tmp_path, kind, values):
    file = tmp_path / f"t.{kind}"
    if kind == "jsonl":
        file.write_text("\n".join(json.dumps({"when": value}) for value in values))
    else:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.table({"when": values}), file)
    with pytest.raises(ScenarioError, match=r"found .*; of numbers give the unit, such as"):
        read_trace(file, column=TimeColumn("when", "iso"))


@pytest.mark.parametrize(
    "spelling", ["2026-01-31T12:00:00,25Z", "2026-01-31 12:00:00.250 UTC", "2026-01-31T12:00:00.25GMT", "2026-01-31 13:00:00,250+01:00"]
)
def test_decimal_commas_and_zones_in_words_are_read(read, spelling):
    trace = read("t.jsonl", "\n".join(json.dumps({"timestamp": text}) for text in ("2026-01-31T12:00:00Z", spelling)))
    assert trace.instants_ns.tolist() == [0, S // 4]


@pytest.mark.parametrize("text", ["31/01/2026 12:00", "2026-12-31T23:59:60Z", "noon", "2026-02-30T12:00:00Z"])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_date_that_cannot_be_read_is_named_with_its_line_and_no_word_of_a_library(read, text, place):
    texts = ["2026-01-31T12:00:00Z"] * 7
    texts[place] = text
    with pytest.raises(ScenarioError) as caught:
        read("t.csv", "timestamp\n" + "\n".join(texts))
    leap = "; a leap second counts as the one before" if ":60" in text else ""
    assert str(caught.value).endswith(f"t.csv:{place + 2}: expected a date and time such as 2026-01-31T12:00:00.250Z, found {text!r}{leap}")


def test_a_parquet_file_gives_the_same_as_a_csv_file(read, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"timestamp_ns": [START_NS, START_NS + 5, START_NS + 1], "model": ["m", "m", "m"], "shapes": ['{"X":[2]}', None, '{"X": [2]}']}
    parquet.write_table(pa.table({**rows, "other": [1.0, 2.0, 3.0]}), tmp_path / "t.parquet")
    instants = pa.array([1_000_000, 1_000_005, 1_000_001], pa.timestamp("us"))
    parquet.write_table(pa.table({"timestamp": instants}), tmp_path / "stamps.parquet")
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(rows)
    writer.writerows(zip(*rows.values(), strict=True))
    of_parquet, of_csv = read_trace(tmp_path / "t.parquet"), read("t.csv", text.getvalue())
    for trace in (of_parquet, of_csv):
        assert trace.instants_ns.tolist() == [0, 1, 5]
        assert [trace.contents[index].shapes for index in trace.content_indices] == ['{"X":[2]}', '{"X":[2]}', ""]
        assert trace.requests_by_model == {"m": 3}
    assert read_trace(tmp_path / "stamps.parquet").instants_ns.tolist() == [0, 1000, 5000]


def test_rows_may_come_in_any_order_and_equal_contents_are_kept_once(read):
    rows = [
        {"timestamp_ns": 30, "request": {"inputs": []}},
        {"timestamp_ns": 10, "payload": "a"},
        {"timestamp_ns": 20, "payload": "b", "shapes": {"X": [1]}},
        {"timestamp_ns": 20, "payload": "a", "shapes": None},
    ]
    trace = read("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert trace.instants_ns.tolist() == [0, 10, 10, 20]
    assert [trace.contents[index].payload for index in trace.content_indices] == ["a", "b", "a", ""]
    assert len(trace.contents) == 3


def test_the_requests_of_one_of_several_models_keep_their_instants(read):
    text = "timestamp_s,model\n10,a\n11,b\n12,a\n14,b\n"
    assert read("t.csv", text, model="b").instants_ns.tolist() == [1 * S, 4 * S]
    assert read("t.csv", text, model="b").period_ns == 4 * S + 4 * S // 3
    with pytest.raises(
        ScenarioError, match=r"requests for 2 models, and a load point sends to one: a \(2\), b \(2\)\. Choose one with load\.replay\.model"
    ):
        read("t.csv", text)
    with pytest.raises(ScenarioError, match=r"load\.replay\.model: .*t\.csv has no requests for 'c'; it has a \(2\), b \(2\)"):
        read("t.csv", text, model="c")


def test_the_intervals_of_perf_analyzers_documentation_give_its_instants(read):
    # its documentation of the custom interval mode, and the instants that it names: 0.1s, 0.3s, 0.8s, 0.9s, 1.1s, 1.6s
    trace = read("my_intervals.txt", "100000\n200000\n500000\n", "request_intervals")
    assert trace.instants_ns.tolist() == [S // 10, 3 * S // 10, 8 * S // 10]
    assert [instant + trace.period_ns for instant in trace.instants_ns.tolist()] == [9 * S // 10, 11 * S // 10, 16 * S // 10]


def test_the_fixed_schedule_of_perf_analyzers_documentation_gives_its_instants(read):
    # the form of the example in its documentation of the fixed schedule mode: 1000 ms and 2000 ms after the start
    document = {
        "data": [
            {"payload": [{"model": "facebook/opt-125m", "messages": [{"role": "user", "content": "?"}]}], "timestamp": [1000]},
            {"payload": [{"model": "facebook/opt-125m", "messages": [{"role": "user", "content": "!"}]}], "timestamp": [2000]},
        ]
    }
    trace = read("input_data.json", json.dumps(document))
    assert trace.instants_ns.tolist() == [S, 2 * S]
    assert json.loads(trace.contents[0].tensors) == {"payload": document["data"][0]["payload"]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", "expected one column with the instants, one of timestamp_ns, timestamp_us, timestamp_ms, timestamp_s, timestamp"),
        ("t.csv", "timestamp_ns\n", "contains no requests"),
        ("t.csv", "timestamp_ns,timestamp_s\n1,1\n", "found timestamp_ns and timestamp_s"),
        ("t.csv", "timestamp_ns,model\n1,a\n2\n", "t.csv:3: the row does not fit the header: it has 1 value, and the header has 2 names$"),
        ("t.csv", "WHEN,Tokens\n1,2\n", r"found none among 'WHEN', 'Tokens': name the one that has them, such as load.replay.columns: {time: NAME, unit: s}"),
        ("t.jsonl", '{"timestamp": 5}', r"of numbers give the unit, such as load.replay.columns: {time: timestamp, unit: ms}"),
        ("t.csv", "timestamp_ns\nnan\n", "t.csv:2: expected a number as the request's instant, found 'nan'"),
        ("t.csv", "timestamp_ns\n99999999999999999999\n", "t.csv:2: "),
        ("t.csv", "timestamp_s\n0\n2e9\n", "spans more than 30 years"),
        ("t.csv", "timestamp\n5\n", "of numbers give the unit"),
        ("t.csv", "timestamp\nyesterday\n", "t.csv:2: expected a date and time"),
        ("t.csv", b"timestamp_ns\n\xff\n", "cannot be read"),
        ("t.jsonl", '{"timestamp_ns": 1}\n{', "t.jsonl:2: not JSON"),
        ("t.jsonl", "[1]\n", "t.jsonl:1: expected an object"),
        ("t.jsonl", '{"timestamp_ns": true}\n', "found True"),
        ("t.jsonl", '{"timestamp_ns": 1, "shapes": [1]}\n', "shapes: expected a JSON object"),
        ("t.jsonl", '{"timestamp_ns": 1, "model": 5}\n', "model: expected text, found 5"),
        ("t.parquet", "no", "cannot be read as Parquet"),
        ("t.json", "{}", "the list 'data'"),
        ("t.json", '{"data": [{"X": [1]}]}', r"data\[0\]\.timestamp: expected a list of one whole number"),
        ("t.json", '{"data": [{"timestamp": [-1]}]}', "milliseconds since the start"),
        ("t.json", '{"data": [[{"timestamp": [1]}]]}', r"data\[0\]: expected the inputs of one request"),
        ("t.txt", "1\n", "give load.replay.format; perf_analyzer's file of intervals has format: request_intervals"),
    ],
)  # fmt: skip
def test_an_unusable_file_is_reported_with_its_place(read, name, text, message):
    with pytest.raises(ScenarioError, match=message) as caught:
        read(name, text)
    assert name in str(caught.value)


@pytest.mark.parametrize("text", ["1.5\n", "-1\n", "a\n", "9" * 30])
def test_an_interval_that_is_no_whole_number_is_refused(read, text):
    with pytest.raises(ScenarioError, match=r"i\.txt:1: expected a whole number of microseconds"):
        read("i.txt", text, "request_intervals")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"the file .*gone\.csv does not exist"):
        read_trace(tmp_path / "gone.csv")


def test_a_trace_beyond_the_budget_is_refused_before_it_is_read(read):
    with pytest.raises(ScenarioError, match=r"load\.replay\.trace: .* bytes × 3 = .* reduce the number of requests in the trace"):
        read("t.csv", "timestamp_ns\n" + "1\n" * 1000, budget=MemoryBudget(4000))


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
    | st.sampled_from(["=1+1", "@SUM(A1)", "-1", "+1", "'=1", "''x", "\t=1"])
)
def test_a_recorded_csv_file_holds_no_formula_and_gives_every_name_back(name):
    with tempfile.TemporaryDirectory() as folder:
        writer = TraceWriter(pathlib.Path(folder) / "t.csv")
        writer.write([TraceRow(1, name, "", "infer", {}, "")])
        writer.close()
        assert [*read_trace(writer.file).requests_by_model] == [name]
        (_, row) = csv.reader(io.StringIO(writer.file.read_bytes().decode(), newline=""))
        assert not row[1].startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.parametrize("instant", ["٣", "1_000", "0x10", "1e", "²", " - 1", "9" * 5000, "1" + "0" * 5000 + ".5"])
def test_an_instant_is_a_number_in_ascii_of_bounded_length(read, instant):
    with pytest.raises(ScenarioError, match="expected a number as the request's instant"):
        read("t.csv", f"timestamp_s\n{instant}\n")
