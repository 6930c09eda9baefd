"""The views in a result folder, drawn from its files alone."""

import pytest

from perfkit.errors import ResultError
from perfkit.report.run import write_reports


def test_reports_are_written_beside_the_result_and_nothing_else_is_left(synthetic):
    maker = synthetic()
    maker.write()
    written = write_reports(maker.folder)
    names = {"plots/load.svg", "plots/percentiles.svg", "plots/timeline.svg", "report.md", "report.html"}
    assert {str(file.relative_to(maker.folder)) for file in written} == names
    found = {str(file.relative_to(maker.folder)) for file in maker.folder.rglob("*") if file.is_file()}
    assert found == names | {"result.json", "latency.hlog"}


def test_writing_again_gives_the_same_bytes(synthetic):
    maker = synthetic(failed=2)
    maker.write()
    first = {file: file.read_bytes() for file in write_reports(maker.folder)}
    assert {file: file.read_bytes() for file in write_reports(maker.folder)} == first


def test_a_path_to_the_result_file_serves_as_well(synthetic):
    maker = synthetic(concurrencies=(1,))
    maker.write()
    assert write_reports(maker.folder / "result.json")[-1] == maker.folder / "report.html"


@pytest.mark.parametrize("options", [{"protocols": ()}, {"samples": 0}, {"samples": 1, "seconds": 1}])
def test_a_result_with_little_in_it_is_reported(synthetic, options):
    maker = synthetic(status="interrupted", **options)
    maker.write()
    assert maker.folder / "report.html" in write_reports(maker.folder)


def test_a_missing_log_is_told(synthetic):
    maker = synthetic(concurrencies=(1,))
    maker.write()
    (maker.folder / "latency.hlog").unlink()
    with pytest.raises(ResultError, match=r"latency\.hlog: cannot be read"):
        write_reports(maker.folder)


def test_a_place_that_cannot_be_written_is_told(synthetic):
    maker = synthetic(concurrencies=(1,))
    maker.write()
    (maker.folder / "plots").write_text("in the way")
    with pytest.raises(ResultError, match="the report cannot be written there"):
        write_reports(maker.folder)
