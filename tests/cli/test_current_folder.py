"""A run in a folder whose files have the names of libraries, as an unpacked archive may have them."""

import pytest

LIBRARIES = ("typing", "numpy", "uvloop", "grpc", "matplotlib", "pandas", "pyarrow", "psutil", "yaml", "pickle", "json")


@pytest.mark.usefixtures("starts_python")
def test_no_code_of_the_current_folder_is_run_by_a_run_its_children_or_its_report(perfkit, write_scenario, tmp_path, monkeypatch):
    place = tmp_path / "place"
    place.mkdir()
    for name in LIBRARIES:
        (place / f"{name}.py").write_text(f"open({str(place / 'was-run')!r}, 'a').write('{name}\\n')\nraise SystemExit('{name}')\n")
    (place / "server_stub.py").write_text("raise SystemExit('server_stub')\n")
    monkeypatch.chdir(place)
    scenario = write_scenario(measure={"warmup": "0s", "requests": 40, "repetitions": 1, "workers": 2})
    finished = perfkit.start("run", scenario, report=True).finish()
    assert not (place / "was-run").exists()
    assert finished.result["status"] != "incomplete", finished.stderr
    assert (finished.folder / "report.html").exists()
