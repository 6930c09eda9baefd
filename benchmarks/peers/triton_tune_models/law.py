"""A model that sleeps by a declared law, so that the best number of instances and the best batching are known.

An execution of n requests takes `fixed_ms` + n · `item_ms`. With `lock` only one instance executes at a time. Each instance beyond
`best_count` that has executed in the last half second makes every execution slower by the share `penalty`. What is not declared is 0.

The instances are counted by files: Triton changes the number of instances in place, and those that stay are not initialized again; those
that are no longer used end seconds later.
"""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import contextlib
import fcntl
import json
import os
import pathlib
import tempfile
import time

import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the law from the model's configuration."""
        config = json.loads(args["model_config"])
        values = {name: float(one["string_value"]) for name, one in config["parameters"].items() if name in _LAW}
        self._best_count, self._penalty = values.get("best_count", 0.0), values.get("penalty", 0.0)
        folder = pathlib.Path(tempfile.gettempdir(), f"{args['model_name']}-{os.getppid()}")
        folder.mkdir(exist_ok=True)
        self._instances, self._own = folder, folder / str(os.getpid())
        self._own.touch()
        self._fixed_s, self._item_s = values.get("fixed_ms", 0.0) / 1e3, values.get("item_ms", 0.0) / 1e3
        self._lock = (folder.with_suffix(".lock")).open("w") if values.get("lock") else None

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """Sleeps as long as the law says, and returns the inputs."""
        self._own.touch()
        crowded = self._active() - self._best_count if self._penalty else 0
        with self._alone():
            time.sleep((1 + self._penalty * max(crowded, 0)) * (self._fixed_s + self._item_s * len(requests)))
        inputs = [triton.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [triton.InferenceResponse([triton.Tensor("OUTPUT0", value)]) for value in inputs]

    def _active(self) -> int:
        """The number of instances that have executed a moment ago."""
        since_s = time.time() - _ACTIVE_S
        return sum(file.stat().st_mtime >= since_s for file in self._instances.iterdir())

    @contextlib.contextmanager
    def _alone(self):  # noqa: ANN202 - whose type Triton's Python need not know
        if self._lock is None:
            yield
            return
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


_ACTIVE_S = 0.5
_LAW = {"fixed_ms", "item_ms", "lock", "best_count", "penalty"}
