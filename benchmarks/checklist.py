"""Runs the conformance checklist of the v2 protocol against the bundled server, as tests that carry the ids of its rows.

    python -m benchmarks.checklist [--out reports/v2-checklist.md]

The tests use sockets, the standard library, grpcio or released versions of tritonclient. The report has a row per id: the request
and the expected answer, the tests and their result. A test belongs to the rows whose ids are in its name or in the ids of its
parameters, such as `test_H4_...` or `[E2_broken_json]`. The exit code is 1 if a row failed or has no test.
"""

import collections
import dataclasses
import importlib.metadata
import pathlib
import platform
import re
import sys

import pytest

from benchmarks.processes import ROOT
from benchmarks.report import option_parser, publish, table_head, table_row

TESTS = ROOT / "tests" / "server_stub"
_ID = re.compile(r"(?<![A-Za-z0-9])[A-Z]\d{1,2}(?![A-Za-z0-9])")
# the model is `simple` unless the row names another
ROWS = {
    "H1": "GET health/live: 200, empty",
    "H2": "GET health/ready while a model loads: 400",
    "H3": "GET ready of a model: 200",
    "H4": "GET ready of an unknown model: 404 with an error",
    "H5": "POST health/live: 405",
    "H6": "GET /v2/nope: 404 Not Found",
    "H7": "GET /v2: name, version, extensions with statistics",
    "H8": "GET a model: shapes [-1,16], versions are strings",
    "H9": "GET densenet's metadata: [3,224,224], no -1",
    "H10": "GET config: max_batch_size 8 as a number, data_type TYPE_INT32",
    "H11": "GET densenet's config: format FORMAT_NCHW",
    "H12": "GET versions/1: 200; versions/9: 404",
    "H13": "GET versions/x: 404",
    "H14": "POST index without a body: 200, an array",
    "I1": "JSON: sums and differences",
    "I2": "nested JSON data: the same as flat data",
    "I3": "binary: octet-stream, the header gives the length of the JSON part",
    "I4": "one JSON and one binary input: 200",
    "I5": "one JSON and one binary output: each as requested",
    "I6": "binary_data_output without outputs: all binary",
    "I7": "binary_data_output, and a listed output without binary_data: JSON",
    "I8": "only OUTPUT1 requested: only OUTPUT1",
    "I9": 'id "42": echoed; "": omitted',
    "I10": "header 0, densenet: the raw request works, with a binary response",
    "I11": "gzip and deflate requests: 200",
    "I12": "Accept-Encoding gzip: gzip, the header gives the length of the decompressed JSON part",
    "I13": "Content-Encoding br: 501 with Accept-Encoding",
    "I14": "two inferences on one socket: both 200",
    "I15": "binary without Content-Type: 200",
    "I16": "simple_identity, a NUL and an empty element: returned unchanged",
    "I17": "simple_identity [1,0]: binary_data_size 0, no header",
    "E1": "an unknown model: 404, the exact message",
    "E2": "broken JSON: 500",
    "E3": "one input missing: 400",
    "E4": "another datatype: 400",
    "E5": "shape [1,15]: 400",
    "E6": "batch 9: 400",
    "E7": "32 bytes for [1,16]: 400, byte size mismatch",
    "E8": "surplus bytes: 400, additional input",
    "E9": "a header length beyond the body: 400",
    "E10": "an unknown output: 400",
    "E11": "FP16 as JSON: 400",
    "E12": "data and binary_data_size: 400",
    "E13": "a negative dimension: 500",
    "E14": "the server survives E1 to E13: I1 passes after each",
    "C1": "classification 3, densenet: BYTES [3], descending, with labels",
    "C2": "classification 1000000: all classes",
    "C3": "batch 2, 2 classes: [2,2]",
    "S1": "statistics after n inferences of batch b: success n, inference_count n·b",
    "S2": "statistics as JSON: eight durations, a count and ns each",
    "S3": "statistics of an unknown model: 400",
    "S4": "queue.count increases with each request",
    "S5": "a dynamically batched pair: one additional execution",
    "M1": "/metrics against perf_analyzer's pattern: its four names match (a fake NVML library stands for the GPU)",
    "M2": "metrics without a GPU: 200",
    "G1": "ServerLive, ServerReady, Health/Check: true, SERVING",
    "G2": "ModelInfer, raw: one raw output each",
    "G3": "typed contents: raw outputs",
    "G4": "both forms: INVALID_ARGUMENT",
    "G5": "an unknown model: NOT_FOUND",
    "G6": "16 MiB both ways: OK",
    "G7": "a gzip call: OK",
    "G8": "triton_enable_empty_final_response, unary: accepted",
    "G9": "a stream, a bad model and then a good one: error_message, then a result",
    "G10": "repeat_int32 with 10 elements: 10 replies in order",
    "G11": "G10 with an empty final response: an 11th without outputs, triton_final_response true",
    "G12": "repeat_int32 unary: UNIMPLEMENTED; over HTTP 501",
    "Q1": "a sequence without an id, or without a start: 400",
    "Q2": "[0,11,7] from start to end: 1, 11, 7 (dyna: the last one with the id added)",
    "X1": "shared memory registered, used, reported, unregistered: the results are in the region",
    "X2": "registered twice: 400; gRPC ALREADY_EXISTS",
    "X3": "all unregistered while nothing is registered, without Content-Length: 200",
    "X4": "CUDA memory registered without a GPU: 400, GPUs not supported",
    "T1": "POST trace/setting {}: 200",
    "T2": "GET logging: six keys",
    "A1": "tritonclient.http.aio, metadata and inference: decoded",
    "P1": "perf_analyzer over HTTP, gRPC and gRPC streams: exit code 0, its server section printed",
}


@dataclasses.dataclass
class Row:
    """The tests of a row, without their parameters, their outcomes, and the reasons of skips."""

    tests: dict[str, None] = dataclasses.field(default_factory=dict)
    outcomes: "collections.Counter[str]" = dataclasses.field(default_factory=collections.Counter)
    reasons: dict[str, None] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """`passed` if there are tests and all passed; otherwise what is missing."""
        if not self.tests:
            return "**missing**: no test"
        if self.outcomes["failed"]:
            return f"**failed**: {self.outcomes['failed']} of {self.outcomes.total()}"
        if not self.outcomes["passed"]:
            return f"not run: {'; '.join(self.reasons)}"
        return "passed" if not self.outcomes["skipped"] else f"passed, {self.outcomes['skipped']} skipped"


def ids(nodeid: str) -> set[str]:
    """The ids of the rows that a test belongs to."""
    return ROWS.keys() & set(_ID.findall(nodeid.partition("::")[2].replace("_", " ")))


class Recorder:
    """A pytest plugin that deselects tests without rows and records the outcomes of the others."""

    def __init__(self) -> None:
        self.rows = {name: Row() for name in ROWS}
        self._ended: dict[str, str] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Called by pytest."""
        chosen = [item for item in items if ids(item.nodeid)]
        config.hook.pytest_deselected(items=[item for item in items if not ids(item.nodeid)])
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for a test's set-up, its call and its tear-down."""
        before = self._ended.get(report.nodeid, "passed")
        self._ended[report.nodeid] = before if before != "passed" else report.outcome
        if report.when != "teardown":
            if report.skipped and isinstance(report.longrepr, tuple):
                for name in ids(report.nodeid):
                    self.rows[name].reasons[report.longrepr[2].removeprefix("Skipped: ")] = None
            return
        file, _, test = report.nodeid.partition("::")
        for name in ids(report.nodeid):
            self.rows[name].tests[f"{pathlib.PurePath(file).relative_to('tests/server_stub')}: {test.partition('[')[0]}"] = None
            self.rows[name].outcomes[self._ended[report.nodeid]] += 1


def report(rows: dict[str, Row]) -> list[str]:
    """The report's lines."""
    verdicts = {name: row.verdict for name, row in rows.items()}
    passed = sum(verdict.startswith("passed") for verdict in verdicts.values())
    clients = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("tritonclient", "grpcio"))
    return [
        "# The v2 conformance checklist for the bundled server",
        "",
        f"{passed} of {len(rows)} rows passed in {sum(row.outcomes.total() for row in rows.values())} test runs.",
        f"{clients}, Python {platform.python_version()}.",
        "`python -m benchmarks.checklist` runs the tests that carry the ids of the rows.",
        "",
        *(f"- {name}: {verdict}" for name, verdict in verdicts.items() if verdict != "passed"),
        "",
        *table_head("id", "request and expected answer", "tests", ">runs", "result"),
        *(
            table_row(name, ROWS[name], "<br>".join(f"`{test}`" for test in row.tests), row.outcomes.total(), verdicts[name])
            for name, row in rows.items()
        ),
    ]


def main() -> int:
    """Runs the tests and writes the report."""
    options = option_parser(__doc__).parse_args()
    recorder = Recorder()
    code = pytest.main([str(TESTS), "-q", "-p", "no:cacheprovider", "-p", "no:randomly"], plugins=[recorder])
    lines = report(recorder.rows)
    is_bad = any(row.verdict.startswith("**") for row in recorder.rows.values())
    is_complete = code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return publish(options.out, lines, is_met=is_complete and not is_bad)


if __name__ == "__main__":
    sys.exit(main())
