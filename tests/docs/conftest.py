import subprocess
import sys

import pytest

from tests.docs.site_pages import ROOT
from tests.made_once import made_once


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    def build(folder):
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
        built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr

    return made_once(tmp_path_factory, "site", build)
