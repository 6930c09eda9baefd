"""The folder of a sweep: which case lies where, and what counts as measured."""

import json

import pytest

from perfkit.errors import ResultError
from perfkit.result.sweep import SWEEP_FILE, SweepFolder, configurations, folder_names, read_sweep, result_folders
from tests.stored_results import changed, write_log

CASES = [({"workload.batch_size": size}, {"name": "s", "workload": {"batch_size": size}}) for size in (1, 4)]


@pytest.fixture
def stored(document):
    """Puts a result of a scenario into a folder."""

    def store(folder, scenario, status="complete", reason=""):
        folder.mkdir(parents=True, exist_ok=True)
        result = {**document, "scenario": scenario, "status": status, "status_reason": reason}
        (folder / "result.json").write_text(json.dumps(result))
        write_log(folder, result)

    return store


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"workload.batch_size": 4, "server.threads": 2}, "batch_size=4_threads=2"),
        ({"target.protocols": ["http", "grpc"]}, "protocols=http-grpc"),
        ({"server.synthetic": "service=constant:5ms,servers=1"}, "synthetic=service=constant-5ms-servers=1"),
        ({"load": {"closed": {"concurrency": 1}}}, "load=-closed-concurrency-1"),
    ],
)
def test_a_folder_is_named_after_its_values(values, name):
    assert folder_names([values]) == [name]


def test_equal_folder_names_get_numbers():
    assert folder_names([{"a.x": 1}, {"b.x": 1}, {"c.x": "1"}]) == ["x=1", "x=1-2", "x=1-3"]


def test_a_complete_case_of_the_same_scenario_is_not_measured_again(tmp_path, stored):
    folder = tmp_path / "sweep"
    assert SweepFolder(folder, "s", CASES).pending() == [0, 1]
    stored(folder / "batch_size=4", CASES[1][1])
    again = SweepFolder(folder, "s", CASES)
    assert again.pending() == [0]
    assert [case.status for case in read_sweep(folder).cases] == ["pending", "complete"]
    assert result_folders(folder) == [folder / "batch_size=4"]
    stored(folder / "batch_size=4", {**CASES[1][1], "name": "other"})
    stored(folder / "batch_size=1", CASES[0][1], status="interrupted")
    assert SweepFolder(folder, "s", CASES).pending() == [0, 1]


@pytest.mark.parametrize("status", ["unsuccessful", "invalid"])
def test_a_case_that_says_little_of_the_server_is_measured_again_and_its_reason_is_told(tmp_path, stored, status):
    folder = tmp_path / "sweep"
    SweepFolder(folder, "s", CASES)
    stored(folder / "batch_size=4", CASES[1][1], status, "most requests failed")
    again = SweepFolder(folder, "s", CASES)
    assert again.pending() == [0, 1]
    assert again.refused == [f"batch_size=4 is measured again: its run ended {status}: most requests failed"]
    stored(folder / "batch_size=4", {**CASES[1][1], "name": "other"}, status)
    assert SweepFolder(folder, "s", CASES).refused == []


def stored_groups(folder):
    return [case.interleaved_group for case in read_sweep(folder).cases]


def test_a_kept_case_keeps_its_group_and_a_case_measured_later_gets_another(tmp_path, stored):
    folder, cases = tmp_path / "sweep", [({"workload.batch_size": n}, {"name": "s", "workload": {"batch_size": n}}) for n in range(5)]
    first = SweepFolder(folder, "s", cases)
    assert stored_groups(folder) == [None] * 5
    first.record_group([0, 1, 2])
    assert stored_groups(folder) == [1, 1, 1, None, None], "a run that is killed now has stored the group"
    for number in (0, 1):
        stored(folder / f"batch_size={number}", cases[number][1])
    again = SweepFolder(folder, "s", cases)
    assert stored_groups(folder) == [1, 1, None, None, None]
    assert again.pending() == [2, 3, 4]
    again.record_group([2, 3])
    assert stored_groups(folder) == [1, 1, 2, 2, None]
    again.record(3, "failed", "no such model")
    again.record(2, "interrupted")
    assert stored_groups(folder) == [1, 1, 2, None, None]
    stored(folder / "batch_size=1", {**cases[1][1], "name": "other"})
    changed_scenario = [*cases[:1], ({"workload.batch_size": 1}, {**cases[1][1], "name": "other"}), *cases[2:]]
    assert SweepFolder(folder, "s", changed_scenario).pending() == [2, 3, 4]
    assert stored_groups(folder) == [1, None, None, None, None]


def test_without_a_sweep_file_that_can_be_read_no_group_is_known(tmp_path, stored):
    folder = tmp_path / "sweep"
    SweepFolder(folder, "s", CASES).record_group([0, 1])
    stored(folder / "batch_size=1", CASES[0][1])
    (folder / SWEEP_FILE).write_text((folder / SWEEP_FILE).read_text().replace('"interleaved_group": 1', '"interleaved_group": 0'))
    with pytest.raises(ResultError, match=r"sweep\.json: cases\.0\.interleaved_group: Input should be greater than or equal to 1"):
        read_sweep(folder)
    again = SweepFolder(folder, "s", CASES)
    assert again.refused == [
        f"which cases were measured interleaved is not known: {folder}/sweep.json: cases.0.interleaved_group: Input should be greater than or equal to 1"
    ]
    assert again.pending() == [1]
    assert stored_groups(folder) == [None, None]


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("summary.0.throughput_per_s", 1e9, "summary.0.throughput_per_s: 1e+09/s would be"),
        ("points.0.service_time_ns.p50", -1, "points.0.service_time_ns.p50: -1 is below zero"),
        ("points", [], "points: there is no load point"),
        ("started_at", "soon", "started_at: expected an instant"),
    ],
)
def test_a_case_whose_result_was_edited_is_measured_again_and_the_reason_is_told(tmp_path, stored, document, path, value, reason):
    folder = tmp_path / "sweep"
    SweepFolder(folder, "s", CASES)
    stored(folder / "batch_size=4", CASES[1][1])
    assert SweepFolder(folder, "s", CASES).pending() == [0]
    edited = changed({**document, "scenario": CASES[1][1]}, path, value)
    (folder / "batch_size=4" / "result.json").write_text(json.dumps(edited))
    again = SweepFolder(folder, "s", CASES)
    assert again.pending() == [0, 1]
    (refused,) = again.refused
    assert refused.startswith(f"batch_size=4 is measured again: {folder}/batch_size=4/result.json: {reason}")


def test_a_case_with_an_emptied_log_is_measured_again(tmp_path, stored):
    folder = tmp_path / "sweep"
    SweepFolder(folder, "s", CASES)
    stored(folder / "batch_size=4", CASES[1][1])
    (folder / "batch_size=4" / "latency.hlog").write_text("")
    again = SweepFolder(folder, "s", CASES)
    assert again.pending() == [0, 1]
    assert "the log has 0 times, the result 3" in again.refused[0]


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "javascript:alert(1)", ".", ""])
def test_a_case_lies_beside_the_sweep_file(tmp_path, name):
    folder = tmp_path / "sweep"
    SweepFolder(folder, "s", CASES)
    document = json.loads((folder / SWEEP_FILE).read_text())
    document["cases"][0]["folder"] = name
    (folder / SWEEP_FILE).write_text(json.dumps(document))
    with pytest.raises(ResultError, match=r"sweep\.json: cases\.0\.folder: expected the name of a folder beside this file"):
        read_sweep(folder)


def test_another_swept_key_makes_other_folders(tmp_path, stored):
    folder = tmp_path / "sweep"
    SweepFolder(folder, "s", CASES)
    stored(folder / "batch_size=1", CASES[0][1])
    more = [({**values, "server.threads": 1}, {**document, "server": {"threads": 1}}) for values, document in CASES]
    assert SweepFolder(folder, "s", more).pending() == [0, 1]


def test_swept_server_keys_name_a_configuration_and_load_keys_do_not(tmp_path, stored):
    cases = [
        ({"server.threads": threads, "load.open.rate": rate}, {"server": {"threads": threads}, "load": {"open": {"rate": rate}}})
        for threads in (1, 2)
        for rate in (5, 9)
    ]
    folder = tmp_path / "sweep"
    names = [case.folder for case in SweepFolder(folder, "s", cases).document.cases]
    for name, (_, document) in zip(names, cases, strict=True):
        stored(folder / name, document)
    SweepFolder(folder, "s", cases)
    assert [label for label, _ in configurations(folder)] == ["server.threads=1"] * 2 + ["server.threads=2"] * 2
    assert configurations(tmp_path / "result") == [("", tmp_path / "result")]


def test_a_folder_that_is_not_a_sweep_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(ResultError, match="is not the folder of a sweep"):
        SweepFolder(tmp_path, "s", CASES)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "perfkit.sweep/2"}', '{"schema": "perfkit.sweep/1"}'])
def test_a_damaged_sweep_file_is_named(tmp_path, text):
    (tmp_path / SWEEP_FILE).write_text(text)
    with pytest.raises(ResultError, match=r"sweep\.json: "):
        read_sweep(tmp_path)


def test_a_result_is_its_own_folder_and_an_unmeasured_sweep_has_none(tmp_path):
    assert result_folders(tmp_path / "result") == [tmp_path / "result"]
    SweepFolder(tmp_path / "sweep", "s", CASES)
    with pytest.raises(ResultError, match="no case of this sweep is measured yet"):
        result_folders(tmp_path / "sweep")
