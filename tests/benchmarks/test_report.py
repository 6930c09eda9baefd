from benchmarks.report import Ratio, publish, table_head, table_row, write_report


def test_tables_are_markdown_with_columns_aligned_right():
    assert table_head("case", ">count") == ["| case | count |", "|---|---:|"]
    assert table_row("a", 1) == "| a | 1 |"


def test_a_report_is_written_in_a_new_folder_with_one_newline_at_its_end(tmp_path):
    write_report(tmp_path / "reports" / "it.md", ["# Title", "", "text", ""])
    assert (tmp_path / "reports" / "it.md").read_text() == "# Title\n\ntext\n"


def test_a_published_report_is_printed_and_written_and_a_missed_target_is_exit_code_1(tmp_path, capsys):
    file = tmp_path / "it.md"
    assert [publish(None, ["text"]), publish(file, ["text"], is_met=True), publish(file, ["text"], is_met=False)] == [0, 0, 1]
    assert capsys.readouterr().out == 3 * "text\n"
    assert file.read_text() == "text\n"


def test_a_median_outside_the_target_misses_it():
    assert not Ratio("it", (1.5, 1.3, 1.6), high=1.4).is_met
    assert not Ratio("it", (0.7, 0.8, 1.0), 0.9, 1.1).is_met
    assert Ratio("it", (0.04, 0.05, 0.06), high=1 / 20).cells == ("0.05", "0.04 to 0.06", "at most 1/20", "yes")
    assert Ratio("it", (1.0, 1.5), low=1.5).cells == ("1.25", "1 to 1.5", "at least 1.5", "no")
    assert Ratio("it", (1.0,)).cells == ("1", "1 to 1", "–", "–")
