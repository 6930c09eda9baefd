"""A server that loads its models with other configurations, as Triton in explicit mode does, for tests of `perfkit tune`."""

import json
import pathlib
import threading
import time
from typing import Any

from tests.json_server import JsonHandler

CONFIG = {"name": "m", "max_batch_size": 0, "instance_group": [{"kind": "KIND_CPU", "count": 2}], "parameters": {}}
TENSOR: dict[str, Any] = {"datatype": "FP32", "shape": [1]}


class Triton:
    """Serves models: 5 ms a request in each instance of the model `slow`."""

    def __init__(self, configs: dict[str, Any] | None = None, slow: str = "m") -> None:
        self.repository = {name: json.dumps(config, indent=1) for name, config in (configs or {"m": CONFIG}).items()}
        self.configs, self.slow = dict(self.repository), slow
        self.is_explicit, self.reads_repository = True, True
        self.refused_counts: set[int] = set()
        self.failing_counts: set[int] = set()
        self.loads: list[str] = []
        self.url = ""
        self.on_load = lambda _: None
        self._free = threading.Condition()
        self._busy = 0
        triton = self

        class Handler(JsonHandler):
            def do_GET(self):
                model = (self.path.split("/")[3:] or [triton.slow])[0]
                if self.path.endswith("/config"):
                    self.answer_bytes(200, triton.configs[model].encode())
                else:
                    metadata = {"name": model, "versions": ["1"], "platform": "x", "inputs": [{"name": "i", **TENSOR}]}
                    self.answer(200, {**metadata, "outputs": [{"name": "o", **TENSOR}]})

            def do_POST(self):
                body = self.body()
                if self.path.endswith("/load"):
                    refusal = triton.load(self.path.split("/")[4], json.loads(body).get("parameters", {}).get("config"))
                    self.answer(400 if refusal else 200, {"error": refusal} if refusal else {})
                elif self.path.endswith("/infer") and triton.count in triton.failing_counts:
                    self.answer(400, {"error": "unexpected shape for input 'i'"})
                elif self.path.endswith("/infer"):
                    triton.execute()
                    model = self.path.split("/")[3]
                    self.answer(200, {"model_name": model, "model_version": "1", "outputs": [{"name": "o", **TENSOR, "data": [1.0]}]})
                else:
                    self.answer(404, {"error": "no such path"})

        self.handler = Handler

    @property
    def loaded(self) -> str:
        """The present configuration of the model that decides."""
        return self.configs[self.slow]

    @loaded.setter
    def loaded(self, config: str) -> None:
        self.configs[self.slow] = config

    @property
    def count(self) -> int:
        """Its instances."""
        count: int = json.loads(self.loaded)["instance_group"][0]["count"]
        return count

    def load(self, model: str, config: str | None) -> str:
        """Loads a model with a configuration, or with its own; the refusal if there is one."""
        if not self.is_explicit:
            return "explicit model load / unload is not allowed if polling is enabled"
        self.loads.append(config or "")
        self.on_load(config)
        if config is None:
            self.configs[model] = self.repository[model] if self.reads_repository else self.configs[model]
        elif json.loads(config)["instance_group"][0]["count"] in self.refused_counts:
            return f"failed to load '{model}': out of memory"
        else:
            self.configs[model] = config
        return ""

    def execute(self) -> None:
        """Takes as long as a request does."""
        with self._free:
            self._free.wait_for(lambda: self._busy < self.count)
            self._busy += 1
        time.sleep(0.005)
        with self._free:
            self._busy -= 1
            self._free.notify_all()


def outcome_of(folder: pathlib.Path) -> Any:
    """The outcome of a tune whose folder is `tune` in this one."""
    return json.loads((folder / "tune" / "tune.json").read_text())
