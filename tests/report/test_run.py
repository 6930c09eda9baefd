"""The reports in a result folder."""

import pytest

from perfkit.errors import ResultError
from perfkit.report.run import write_reports


def test_reports_are_written_beside_the_result_without_temporary_files(synthetic):
    maker = synthetic(protocols=("http",), concurrencies=(1, 2))
    maker.write()
    written = write_reports(maker.folder)
    names = {"plots/load.svg", "plots/trade.svg", "plots/percentiles.svg", "plots/timeline.svg", "report.md", "report.html"}
    assert {str(file.relative_to(maker.folder)) for file in written} == names
    found = {str(file.relative_to(maker.folder)) for file in maker.folder.rglob("*") if file.is_file()}
    assert found == names | {"result.json", "latency.hlog", "checksums.sha256"}


def test_writing_again_from_the_path_of_the_result_file_gives_the_same_bytes(synthetic):
    maker = synthetic(failed=2, protocols=("http",), concurrencies=(1, 2))
    maker.write()
    first = {file: file.read_bytes() for file in write_reports(maker.folder)}
    assert {file: file.read_bytes() for file in write_reports(maker.folder / "result.json")} == first


@pytest.mark.parametrize("options", [{"samples": 0}, {"samples": 1, "seconds": 1}])
def test_a_result_with_hardly_any_samples_has_a_report(synthetic, options):
    maker = synthetic(status="interrupted", **options)
    maker.write()
    assert maker.folder / "report.html" in write_reports(maker.folder)


def test_a_folder_that_cannot_be_written_and_a_missing_log_are_reported(synthetic):
    maker = synthetic(concurrencies=(1,))
    maker.write()
    (maker.folder / "plots").write_text("in the way")
    with pytest.raises(ResultError, match="the report cannot be written there"):
        write_reports(maker.folder)
    (maker.folder / "latency.hlog").unlink()
    with pytest.raises(ResultError, match=r"latency\.hlog: cannot be read"):
        write_reports(maker.folder)
