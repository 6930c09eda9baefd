"""What the documentation's commands take as given: models for the bundled server, and results of simulated machines.

python -m benchmarks.documentation.made models|mine|machines|nightly FOLDER
"""

import datetime
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from tests import stored_results
from tests.queue_results import Writer, mm1_times_s

_SIMPLE_CONFIG = """
name: "simple"
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 16 ] }, { name: "INPUT1" data_type: TYPE_INT32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 16 ] }, { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ] } ]
"""
_FLOAT, _INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
_DAY = datetime.timedelta(days=1)


def write_models(folder: pathlib.Path) -> None:
    """A model repository: `my_model` and what the pages call by other names, all of them small."""
    for name, shape in (("my_model", [4]), ("densenet_onnx", [4]), ("doubling", ["batch", 4])):
        _write_model(folder / name, [("x", "x", "Add", "y")], _FLOAT, shape)
    both = [("INPUT0", "INPUT1", "Add", "OUTPUT0"), ("INPUT0", "INPUT1", "Sub", "OUTPUT1")]
    _write_model(folder / "simple", both, _INT32, ["batch", 16])
    (folder / "simple" / "config.pbtxt").write_text(_SIMPLE_CONFIG, encoding="utf-8")


def _write_model(folder: pathlib.Path, steps: list[tuple[str, str, str, str]], datatype: int, shape: list[Any]) -> None:
    def values(names: set[str]) -> list[onnx.ValueInfoProto]:
        return [onnx.helper.make_tensor_value_info(name, datatype, shape) for name in sorted(names)]

    nodes = [onnx.helper.make_node(operator, [first, second], [output]) for first, second, operator, output in steps]
    inputs = values({name for first, second, _, _ in steps for name in (first, second)})
    graph = onnx.helper.make_graph(nodes, folder.name, inputs, values({output for *_, output in steps}))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    file = folder / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(model.SerializeToString())


def write_mine(folder: pathlib.Path) -> None:
    """`mine-1` and `mine-2`: two starts of a machine that needs 5 ms for a request."""
    _write_machine(folder, "mine", 0.005, starts=2)


def write_machines(folder: pathlib.Path) -> None:
    """`small-1` to `large-3`: starts of three machines that need 8, 4 and 2 ms for a request."""
    for label, mean_s, starts in (("small", 0.008, 2), ("medium", 0.004, 2), ("large", 0.002, 3)):
        _write_machine(folder, label, mean_s, starts)


def _write_machine(folder: pathlib.Path, label: str, mean_s: float, starts: int) -> None:
    """Results of a machine that is an M/M/1 queue, at rates from a fifth of what it can do to more than that."""
    full_per_s, seconds = 1 / mean_s, 240
    rates = [round(share * full_per_s) for share in (0.2, 0.35, 0.5, 0.6, 0.7, 0.75, 0.8, 1.2)]

    def times_s(random: np.random.Generator, _: float, number: int) -> Any:
        return mm1_times_s(random, min(number / seconds, 0.9 * full_per_s), number, mean_s)  # type: ignore[no-untyped-call] # of the tests, which have no types

    for start in range(1, starts + 1):
        write = Writer(folder / "made")
        made = write(
            rates, seed=start, workload_seed=start, restart=0.01 * start, seconds=seconds, overloaded_from=full_per_s, slowest_per_s=full_per_s,
            times_s=times_s,
        )  # fmt: skip
        made.replace(folder / f"{label}-{start}")


def write_nightly(folder: pathlib.Path) -> None:
    """A month of nightly results of `simple`, slower by an eighth since two weeks; those of `mix` end four days ago; the newest is `nightly`."""
    random, now = np.random.default_rng(7), datetime.datetime.now(datetime.UTC)
    for days in range(30, 0, -1):
        for name, newest in (("simple", 1), ("mix", 4)):
            if days < newest:
                continue
            slower = 1.125 if name == "simple" and days < 14 else 1.0
            p99_ms = float(6 * slower * np.exp(random.normal(0, 0.01)))
            document = stored_results.document(
                started_at=(now - days * _DAY).isoformat(timespec="milliseconds"), commit=f"{days:040x}", p99_ms=p99_ms
            )
            document["scenario"]["name"] = name
            stored_results.write(folder / ("nightly" if days == 1 else f"{name}-{days}"), document)


MAKERS: dict[str, Callable[[pathlib.Path], None]] = {
    "models": write_models, "mine": write_mine, "machines": write_machines, "nightly": write_nightly,
}  # fmt: skip


if __name__ == "__main__":
    MAKERS[sys.argv[1]](pathlib.Path(sys.argv[2]))
