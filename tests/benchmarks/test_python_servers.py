"""The comparison of perfkit's counts with those of a server, on a server whose count is known."""

import pathlib

import pytest

from benchmarks.peers.python_servers import PythonServer, measure
from tests.json_server import JsonHandler, serving


@pytest.mark.parametrize(("counts_each", "agrees"), [(1, True), (2, False)])
def test_a_server_that_counts_other_requests_is_noticed(tmp_path: pathlib.Path, counts_each: int, agrees: bool) -> None:
    count_file = tmp_path / "count"
    tensor = {"name": "y", "datatype": "FP32", "shape": [1, 4]}

    class Handler(JsonHandler):
        def do_GET(self):
            self.answer(
                404 if self.path.endswith("config") else 200, {"name": "doubling", "inputs": [{**tensor, "name": "x"}], "outputs": [tensor]}
            )

        def do_POST(self):
            self.body()
            with count_file.open("ab") as file:
                file.write(counts_each * b".")
            self.answer(200, {"model_name": "doubling", "outputs": [{**tensor, "data": [0.0] * 4}]})

    with serving(Handler) as port:
        cells, found = measure(PythonServer("fake", port, 0, count_file), "http", {"closed": {"concurrency": 2}}, 20)
    assert (cells[:2], found) == (["20", f"{21 * counts_each}"], agrees)
