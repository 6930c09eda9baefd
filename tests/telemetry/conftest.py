import shutil

import pytest

from tests.telemetry.fake_nvml.library import FakeNvml, compile_into


@pytest.fixture(scope="session")
def compiled_nvml(tmp_path_factory):
    return compile_into(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(compiled_nvml, tmp_path):
    shutil.copy(compiled_nvml, tmp_path)
    return FakeNvml(tmp_path)
