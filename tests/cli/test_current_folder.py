"""A run without standard files, in a folder whose files have the names of libraries, as an unpacked archive may have them."""

import json
import subprocess
import sys

LIBRARIES = ("typing", "numpy", "uvloop", "grpc", "matplotlib", "pandas", "pyarrow", "psutil", "yaml", "pickle", "json")


def test_a_run_needs_no_standard_files_and_it_its_children_and_its_report_run_no_code_of_the_current_folder(write_scenario, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    for name in LIBRARIES:
        (place / f"{name}.py").write_text(f"open({str(place / 'was-run')!r}, 'a').write('{name}\\n')\nraise SystemExit('{name}')\n")
    (place / "server_stub.py").write_text("raise SystemExit('server_stub')\n")
    scenario = write_scenario(
        load={"closed": {"concurrency": 2, "think_time": "5ms"}}, measure={"warmup": "0s", "requests": 50, "repetitions": 1, "workers": 2}
    )
    perfkit = [sys.executable, "-m", "perfkit", "run", str(scenario), "--out", str(tmp_path / "out")]
    subprocess.run(["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *perfkit], cwd=place, check=False)
    assert not (place / "was-run").exists()
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [point["requests"]["ok"] for point in result["points"]] == [50]
    assert not [note for note in result["environment"]["telemetry"]["notes"] if "telemetry process" in note]
    assert (tmp_path / "out" / "report.html").exists()
