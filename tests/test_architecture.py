"""The house's order, held over the syntax trees: who may import whom, and one importing module for each library."""

import ast
import graphlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# a module imports only what stands before it, and modules of its own part
ORDER = [
    "errors", "units", "clock", "address", "scenario", "protocol", "workload", "transport", "load", "recorder", "telemetry", "fleet", "result", "stats",
    "calibration", "doctor", "side_by_side", "stored_gate", "trend", "history", "bundled_server", "command_server", "target", "load_point", "published", "observation",
    "measured_point", "observer", "steering", "measurement", "experiment", "gate", "plan", "report", "api", "cli", "__main__",
]  # fmt: skip
# what the order alone would allow
FORBIDDEN = {("telemetry", "load"), ("report", "measurement"), ("report", "gate"), ("protocol", "scenario"), ("stats", "clock")}
SERVER_STUB_USES = {"errors", "protocol"}
IMPORTERS = {
    "aiohttp": {
        "perfkit.transport.reference_http", "server_stub.http_administration", "server_stub.http_connections", "server_stub.http_front", "server_stub.http_generate",
        "server_stub.metrics_front",
    },
    "PIL": {"perfkit.workload.images"},
    "cupy": {"server_stub.executors.array"},
    "google": {  # protobuf: who speaks gRPC handles its messages and their errors
        "perfkit.protocol.protobuf", "perfkit.protocol.v2_pb2", "perfkit.transport.rpc", "server_stub.definition", "server_stub.grpc_front",
        "server_stub.grpc_stream", "server_stub.model_config", "server_stub.shared_requests",
    },
    "grpc": {"perfkit.transport.reference_grpc", "server_stub.grpc_front", "server_stub.grpc_server"},
    "hpack": {"perfkit.transport.http2"},
    "hdrh": {"perfkit.recorder.histogram"},
    "httptools": {"perfkit.transport.http1", "server_stub.http_brief"},
    "jinja2": {"perfkit.report.html"},
    "matplotlib": {"perfkit.report.plan_plots", "perfkit.report.plot_style", "perfkit.report.plots", "perfkit.report.resource_plots", "perfkit.report.search_plot", "perfkit.report.trend"},
    "onnx": {"server_stub.devices", "server_stub.models.densenet_graph"},
    "onnxruntime": {"server_stub.devices", "server_stub.executors.onnx"},
    "prometheus_client": {"perfkit.telemetry.metrics_page"},
    "psutil": {"perfkit.telemetry.host", "perfkit.telemetry.server_processes"},
    "pyarrow": {"perfkit.result.telemetry_file"},
    "pynvml": {"perfkit.telemetry.gpu", "server_stub.gpu_metrics"},
    "rich": {"perfkit.report.text"},
    "uvloop": {"perfkit.api", "perfkit.calibration.lean_server", "perfkit.cli.calibrate", "perfkit.cli.gate", "perfkit.cli.run", "perfkit.fleet.process", "server_stub.__main__"},
    "yaml": {"perfkit.scenario.file"},
}  # fmt: skip
DRAWERS = {"utils", "util", "common", "helpers", "helper", "manager"}


def read_imports(root: pathlib.Path) -> dict[str, set[str]]:
    """Every module below `perfkit` and `server_stub`, and the modules that it names in imports, wherever in it they stand."""
    modules = {}
    for path in sorted([*root.glob("perfkit/**/*.py"), *root.glob("server_stub/**/*.py")]):
        names = path.relative_to(root).with_suffix("").parts
        modules[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        found = imports[module] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                found.update(inner if (inner := f"{base}.{alias.name}") in modules else base for alias in node.names)
    return imports


def find_violations(imports: dict[str, set[str]]) -> list[str]:
    """What breaks the order, `importer -> imported`."""
    found = []
    for importer, names in imports.items():
        package, part = [*importer.split("."), ""][:2]
        for name in names:
            other, other_part = [*name.split("."), ""][:2]
            if other == "perfkit" and package == "server_stub":
                allowed = other_part in SERVER_STUB_USES
            elif (
                other == "perfkit" and part != other_part and other_part
            ):  # perfkit itself passes the API on, and only when that is asked for
                allowed = ORDER.index(other_part) < ORDER.index(part) if part else other_part == "api"
                allowed = allowed and (part, other_part) not in FORBIDDEN
            else:
                allowed = not name.startswith(".") and (other != "server_stub" or package == "server_stub")
            if not allowed:
                found.append(f"{importer} -> {name}")
    return sorted(found)


IMPORTS = read_imports(ROOT)


def test_every_part_has_its_place_in_the_order():
    assert {module.split(".")[1] for module in IMPORTS if module.startswith("perfkit.")} == set(ORDER)


def test_a_module_imports_only_what_stands_above_it():
    assert find_violations(IMPORTS) == []


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: {name for name in names if name in IMPORTS} - {"perfkit"} for module, names in IMPORTS.items()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(IMPORTS)


@pytest.mark.parametrize("library", IMPORTERS)
def test_each_library_has_the_importing_modules_that_are_listed(library):
    assert {module for module, names in IMPORTS.items() if library in {name.split(".")[0] for name in names}} == IMPORTERS[library]


def test_only_the_clock_reads_a_clock():
    assert {module for module, names in IMPORTS.items() if module.startswith("perfkit") and names & {"time", "datetime"}} == {
        "perfkit.clock"
    }


def test_no_module_is_a_drawer_for_everything():
    assert {part for module in IMPORTS for part in module.split(".")} & DRAWERS == set()


@pytest.mark.parametrize(
    ("module", "line", "violation"),
    [
        ("perfkit/load/loop.py", "from perfkit.recorder.recording import R", "perfkit.load.loop -> perfkit.recorder.recording"),
        ("perfkit/load/loop.py", "from perfkit import recorder", "perfkit.load.loop -> perfkit.recorder"),
        ("perfkit/load/loop.py", "def f():\n    import perfkit.recorder.recording", "perfkit.load.loop -> perfkit.recorder.recording"),
        ("perfkit/load/loop.py", "from ..recorder import recording", "perfkit.load.loop -> ..recorder"),
        ("perfkit/telemetry/host.py", "from perfkit.load.loop import L", "perfkit.telemetry.host -> perfkit.load.loop"),
        ("perfkit/report/text.py", "from perfkit import measurement", "perfkit.report.text -> perfkit.measurement"),
        ("perfkit/stats/summary.py", "from perfkit.clock import Clock", "perfkit.stats.summary -> perfkit.clock"),
        ("perfkit/errors.py", "import perfkit.units", "perfkit.errors -> perfkit.units"),
        ("perfkit/__init__.py", "from perfkit.measurement import run_scenario", "perfkit -> perfkit.measurement"),
        ("perfkit/cli/serve.py", "import server_stub.server", "perfkit.cli.serve -> server_stub.server"),
        ("server_stub/server.py", "from perfkit.units import x", "server_stub.server -> perfkit.units"),
    ],
)
def test_what_breaks_the_order_is_found(tmp_path, module, line, violation):
    files = {
        "perfkit/recorder/__init__.py": "",
        "perfkit/measurement.py": "from perfkit.errors import E\n",
        "server_stub/model.py": "from perfkit.protocol import p\n",
    }
    for name, text in {**files, module: f"{line}\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert find_violations(read_imports(tmp_path)) == [violation]
