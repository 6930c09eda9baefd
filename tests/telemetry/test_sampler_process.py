"""The process that samples, in this one: orders and answers are bytes."""

import concurrent.futures
import io
import pickle
from typing import Any

import pytest

from perfkit.telemetry import sampler_process as process
from perfkit.telemetry.messages import Started, TelemetryConfig, WindowReport, WindowRequest

ORDERS = pickle.dumps(TelemetryConfig()) + pickle.dumps(WindowRequest(0, 1))


class Broken(io.BytesIO):
    """A pipe whose other end is gone."""

    def flush(self):
        raise BrokenPipeError


@pytest.mark.parametrize("left", [0, 5])
def test_orders_that_end_or_break_off_end_it_quietly(left):
    answers = io.BytesIO()
    process.serve(io.BytesIO(ORDERS + pickle.dumps(WindowRequest(1, 2))[:left]), answers)
    answers.seek(0)
    found = [pickle.load(answers) for _ in range(2)]  # noqa: S301 - ours
    assert [type(one) for one in found] == [Started, WindowReport]
    assert answers.read() == b""


@pytest.mark.parametrize("orders", [b"", ORDERS[:9]])
def test_one_that_is_never_told_what_to_sample_ends_quietly(orders):
    answers = io.BytesIO()
    process.serve(io.BytesIO(orders), answers)
    assert answers.getvalue() == b""


def test_nobody_there_to_answer_ends_it_quietly():
    process.serve(io.BytesIO(ORDERS), Broken())


class Begun:
    """A sampler whose start noted this, or has not ended."""

    def __init__(self, name, notes=None):
        self.name = name
        self._notes: concurrent.futures.Future[list[str]] = concurrent.futures.Future()
        if notes is not None:
            self._notes.set_result(notes)

    def take_notes(self):
        return self._notes


def test_a_sampler_that_hangs_at_its_start_is_said(monkeypatch):
    monkeypatch.setattr(process, "_STARTS_WITHIN_S", 0.0)
    driven: list[Any] = [Begun("generator", ["Some."]), Begun("gpu")]
    notes = process._begun(driven)
    assert notes == ("Some.", "Sampling of gpu had not begun after 0 s.")
