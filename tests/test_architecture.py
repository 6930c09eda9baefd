"""The layers of docs/architecture.md, checked against every import of perfkit and of the bundled server."""

import ast
import functools
import graphlib
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SERVER_STUB_USES = {"digits", "errors", "input_file", "installation", "override", "protocol"}
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager"}


def read_layers(document: str) -> dict[str, int]:
    """Every package of perfkit with the number of its layer, from the lowest, 0."""
    block = re.search(r"^```layers\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
    assert block is not None
    lines = block.group(1).splitlines()
    return {name: number for number, line in enumerate(reversed(lines)) for name in line.split()}


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """A module's statements, at its top and inside others; `ast.walk` would go through all their expressions, too."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, part, [])


@functools.cache
def read_imports(root: pathlib.Path, packages: tuple[str, ...] = ("perfkit", "server_stub")) -> dict[str, set[str]]:
    """Every module of packages, and the modules that it imports, at its top or inside a function."""
    modules = {}
    for path in sorted(path for package in packages for path in root.glob(f"{package}/**/*.py")):
        names = path.relative_to(root).with_suffix("").parts
        modules[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        found = imports[module] = set()
        for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                found.update(inner if (inner := f"{base}.{alias.name}") in modules else base for alias in node.names)
    return imports


def find_violations(imports: dict[str, set[str]], layers: dict[str, int]) -> list[str]:
    """Imports that the layers do not allow, as `importer -> imported`."""
    top = max(layers.values()) + 1  # perfkit/__main__.py, and the package itself, which passes the API on
    found = []
    for importer, names in imports.items():
        package, part = [*importer.split("."), ""][:2]
        for name in names:
            other, other_part = [*name.split("."), ""][:2]
            if other == "perfkit" and package == "server_stub":
                allowed = other_part in SERVER_STUB_USES
            elif other == "perfkit" and other_part:
                allowed = part == other_part or layers[other_part] < layers.get(part, top)
            else:
                allowed = not name.startswith(".") and (other != "server_stub" or package == "server_stub")
            if not allowed:
                found.append(f"{importer} -> {name}")
    return sorted(found)


LAYERS = read_layers((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))


@pytest.fixture
def imports():
    return read_imports(ROOT)  # on first use: other test processes only collect this file


def test_the_map_names_every_package_and_no_other(imports):
    packages = {module.split(".")[1] for module in imports if module.startswith("perfkit.")} - {"__main__"}
    assert set(LAYERS) == packages


def test_there_are_at_most_thirteen_layers():
    assert len(set(LAYERS.values())) <= 13


def test_a_package_imports_only_from_the_layers_below_it(imports):
    assert find_violations(imports, LAYERS) == []


def test_no_modules_import_each_other_in_a_circle(imports):
    graph = {module: {name for name in names if name in imports} - {"perfkit"} for module, names in imports.items()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(imports)


def test_only_the_clock_module_reads_a_clock(imports):
    assert {module for module, names in imports.items() if module.startswith("perfkit") and names & {"time", "datetime"}} == {
        "perfkit.clock"
    }


def test_no_module_has_a_name_that_says_nothing(imports):
    assert {part for module in imports for part in module.split(".")} & VAGUE_NAMES == set()


@pytest.mark.parametrize(
    ("module", "line", "violation"),
    [
        ("perfkit/load/loop.py", "from perfkit.recorder.recording import R", "perfkit.load.loop -> perfkit.recorder.recording"),
        ("perfkit/load/loop.py", "from perfkit import recorder", "perfkit.load.loop -> perfkit.recorder"),
        ("perfkit/load/loop.py", "def f():\n    import perfkit.recorder.recording", "perfkit.load.loop -> perfkit.recorder.recording"),
        ("perfkit/load/loop.py", "from ..recorder import recording", "perfkit.load.loop -> ..recorder"),
        ("perfkit/stats/slo.py", "from perfkit.recorder import r", "perfkit.stats.slo -> perfkit.recorder"),
        ("perfkit/errors.py", "import perfkit.units", "perfkit.errors -> perfkit.units"),
        ("perfkit/measurement/lifecycle.py", "import server_stub.server", "perfkit.measurement.lifecycle -> server_stub.server"),
        ("server_stub/server.py", "from perfkit.units import x", "server_stub.server -> perfkit.units"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path, module, line, violation):
    files = {"perfkit/recorder/__init__.py": "", "server_stub/model.py": "from perfkit.protocol import p\n"}
    for name, text in {**files, module: f"{line}\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert find_violations(read_imports(tmp_path), LAYERS) == [violation]
