"""A clock that tests move, pages of metrics that a real HTTP server serves, and a fake NVML library."""

import dataclasses
import pathlib
import shutil

import pytest

from tests.json_server import JsonHandler, serving
from tests.telemetry.fake_nvml.library import FakeNvml, compile_into

PAGES = pathlib.Path(__file__).with_name("pages")


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.ns = 0

    def now_ns(self):
        return self.ns

    async def sleep_until_ns(self, instant_ns):
        self.ns = max(self.ns, instant_ns)


@dataclasses.dataclass
class Served:
    """What the page answers now, and with which headers it was asked last."""

    url: str
    text: str = ""
    status: int = 200
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def page():
    class Handler(JsonHandler):
        def do_GET(self):
            served.headers = dict(self.headers)
            self.answer_bytes(served.status, served.text.encode())

    with serving(Handler) as port:
        served = Served(f"http://127.0.0.1:{port}/metrics")
        yield served


@pytest.fixture(scope="session")
def compiled_nvml(tmp_path_factory):
    return compile_into(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(compiled_nvml, tmp_path):
    shutil.copy(compiled_nvml, tmp_path)
    return FakeNvml(tmp_path)
