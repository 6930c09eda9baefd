"""A chat over OpenAI's API and a model over v2 in one run: each has the figures of its own API."""

from typing import Any

import pytest

from tests.json_server import serving, v2_handler
from tests.openai_server import MODEL, Answers, openai_server


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_chat_and_v2_share_a_run(perfkit, write_scenario, order):
    loads = {"chat": {"closed": {"concurrency": [2]}}, "plain": {"open": {"rate": 40}}}
    with openai_server(Answers(gap_s=0.02)) as chat_url, serving(v2_handler(lambda _: None)) as v2_port:
        chat: dict[str, Any] = {
            "name": "chat",
            "model": MODEL,
            "target": {"url": chat_url, "api": "openai"},
            "stream": {},
            "prompts": {"values": ["Why?"]},
        }
        plain: dict[str, Any] = {"name": "plain", "model": "m", "target": {"url": f"http://127.0.0.1:{v2_port}"}}
        entries = [(chat, plain)[place] for place in order]
        scenario = write_scenario(
            workloads=[{**entry, "load": loads[entry["name"]]} for entry in entries],
            target={},
            load=None,
            measure={"warmup": "500ms", "duration": "1s", "repetitions": 1},
            telemetry=False,
        )
        points = {point["workload"]: point for point in perfkit.measure(scenario).result["summary"]}
    assert points["chat"]["tokens"]["output"] == 4 * points["chat"]["requests"]["ok"]
    assert points["chat"]["first_token_time_ns"]["count"] == points["chat"]["requests"]["ok"] > 0
    assert points["plain"]["tokens"] is points["plain"]["first_token_time_ns"] is None
    assert points["plain"]["requests"]["ok"] > 0
    whole = points[None]
    assert whole["tokens"] == points["chat"]["tokens"]
    assert whole["output_tokens_per_s"] == pytest.approx(points["chat"]["output_tokens_per_s"])
