"""What every program of the benchmarks uses: options, and a report that says whether its requirements are met."""

import pytest

from benchmarks.processes import BEFORE_OPTION
from benchmarks.report import Ratio, Report, program_options, rounds_text


def test_a_report_is_printed_and_written_and_a_missed_requirement_is_exit_code_1(tmp_path, capsys):
    page = Report(tmp_path / "reports" / "it.md", "Title")
    page.table("case", ">count")
    page.judged_row(True, "a", 1)
    assert page.write() == 0
    page.judged_row(False, "b", 2)
    page.add("")
    assert page.write() == 1
    lines = ["# Title", "", "| case | count |", "|---|---:|", "| a | 1 | yes |", "| b | 2 | no |", ""]
    assert (tmp_path / "reports" / "it.md").read_text() == "\n".join(lines)
    assert capsys.readouterr().out.startswith("# Title\n\n| case | count |\n")


def test_options_have_the_type_of_their_defaults(monkeypatch):
    monkeypatch.setattr("sys.argv", ["it", "--seconds=2", "--realtime", "--names", "a", "b"])
    options = program_options("It measures.\n", seconds=5.0, realtime=False, at_once=(3, "how many"), names=["x"], seed=int)
    assert vars(options) == {"out": None, "seconds": 2.0, "realtime": True, "at_once": 3, "names": ["a", "b"], "seed": None}


def test_another_checkout_is_found_from_the_current_folder_and_needs_a_python_of_its_own(monkeypatch, tmp_path, capsys):
    python = tmp_path / "old" / ".venv" / "bin" / "python"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["it", "--before", "old"])
    with pytest.raises(SystemExit) as ended:
        program_options("It measures.\n", before=BEFORE_OPTION)
    assert ended.value.code == 2
    assert f"argument --before: there is no {python}\n" in capsys.readouterr().err
    python.parent.mkdir(parents=True)
    python.touch()
    before = program_options("It measures.\n", before=BEFORE_OPTION).before
    assert (before.folder, before.perfkit) == (tmp_path / "old", [str(python), "-m", "perfkit"])


def test_one_round_is_not_rounds():
    assert [rounds_text(1), rounds_text(2)] == ["1 round", "2 rounds"]


def test_a_median_outside_the_target_misses_it():
    assert not Ratio("it", (1.5, 1.3, 1.6), high=1.4).is_met
    assert Ratio("it", (0.04, 0.05, 0.06), high=1 / 20).cells == ("0.05", "0.04 to 0.06", "at most 1/20", "yes")
    assert Ratio("it", (1.0,)).cells == ("1", "1 to 1", "–", "–")
