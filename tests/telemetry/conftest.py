"""A clock set by hand, pages of metrics served over HTTP, and a fake NVML library."""

import dataclasses
import shutil

import pytest

from tests.clocks import SettableClock
from tests.json_server import JsonHandler, serving
from tests.telemetry.fake_nvml.library import FakeNvml, compiled


@dataclasses.dataclass
class ServedPage:
    """What the page answers, and the headers of the last request."""

    url: str
    text: str = ""
    status: int = 200
    location: str = ""
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


@pytest.fixture
def clock():
    return SettableClock()


@pytest.fixture
def page():
    class Handler(JsonHandler):
        def do_GET(self):
            served.headers = dict(self.headers)
            self.answer_bytes(served.status, served.text.encode())

        def end_headers(self):
            if served.location:
                self.send_header("Location", served.location)
            super().end_headers()

    with serving(Handler) as port:
        served = ServedPage(f"http://127.0.0.1:{port}/metrics")
        yield served


@pytest.fixture(scope="session")
def compiled_nvml(tmp_path_factory):
    return compiled(tmp_path_factory)


@pytest.fixture
def fake_nvml(compiled_nvml, tmp_path):
    shutil.copy(compiled_nvml, tmp_path)
    return FakeNvml(tmp_path)
