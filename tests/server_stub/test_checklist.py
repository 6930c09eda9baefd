"""Every row of the conformance checklist in README.md has a test that carries its id."""

import ast
import pathlib
import re

FOLDER = pathlib.Path(__file__).parent


def test_every_row_has_a_test():
    rows = re.findall(r"^\| ([A-Z]\d+) \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    nodes = [node for file in FOLDER.rglob("test_*.py") for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    names |= {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"[A-Z]\d+_", node.value)
    }
    tested = {word for name in names for word in name.split("_")}
    assert len(rows) > 70
    assert [row for row in rows if row not in tested] == []
