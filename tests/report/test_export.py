"""Results for other programs: the CSV of load points, and .hgrm files, read back by other means."""

import csv
import io
import math
import re

import pytest
from PIL import Image

from perfkit.cli.main import main
from perfkit.recorder.histogram import percentile_distribution
from perfkit.report.chart import BLUE, VERMILLION
from perfkit.report.chart_rules import many_colour
from perfkit.report.matplotlib_charts import draw
from perfkit.report.time_charts import time_group
from perfkit.report.timeline import read_timeline
from perfkit.stats.buckets import BucketCounts
from tests import stored_results
from tests.report.conftest import Synthetic
from tests.report.subject_pages import sweep_page


@pytest.fixture
def folders(tmp_path):
    """Two results, of 500/s and of 480/s."""
    written = []
    for name, rate in (("one", 500.0), ("two", 480.0)):
        document = stored_results.document(throughput_per_s=rate)
        written.append(stored_results.write(tmp_path / name, document))
        stored_results.write_log(written[-1], document)
    return written


def test_the_csv_has_a_row_for_each_load_point_of_all_results(folders, tmp_path, capsys):
    assert main(["report", *map(str, folders), "--csv", str(tmp_path / "all.csv"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    text = (tmp_path / "all.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["result"], row["throughput_per_s"], row["p99_ns"], row["level"]) for row in rows] == [
        (str(folders[0]), "500.0", "6000000", "4"),
        (str(folders[1]), "480.0", "6000000", "4"),
    ]
    assert "repetition" not in rows[0]
    assert main(["report", *map(str, folders), "--csv", "-", "--quiet"]) == 0
    assert capsys.readouterr().out == text
    assert {path.name for path in folders[0].iterdir()} == {"result.json", "latency.hlog"}  # no report


def test_each_load_point_has_a_file_of_percentiles(folders, tmp_path, capsys):
    assert main(["report", str(folders[0]), "--hgrm", str(tmp_path / "h"), "--quiet"]) == 0
    (file,) = (tmp_path / "h").iterdir()
    assert file.name == "http-concurrency-4-service.hgrm"
    assert re.search(r"TotalCount     = +15000\.000\]", file.read_text())
    assert main(["report", *map(str, folders), "--hgrm", str(tmp_path / "both")]) == 0
    assert [path.parent.name for path in sorted((tmp_path / "both").glob("*/*.hgrm"))] == ["1", "2"]
    assert capsys.readouterr().out.count(".hgrm\n") == 2


def test_exports_and_rankings_exclude_each_other(folders, capsys):
    assert main(["report", str(folders[0]), "--csv", "-", "--table-only"]) == 2
    assert "remove --table-only" in capsys.readouterr().err


@pytest.fixture
def result_folder(synthetic):
    maker = synthetic(concurrencies=(1, 2, 8), repetitions=1)
    maker.write()
    return maker.folder


def test_the_main_chart_is_drawn_for_slides_with_the_answer_above_it(result_folder, tmp_path, capsys):
    png, svg = tmp_path / "slide.png", tmp_path / "slide.svg"
    assert main(["report", str(result_folder), "--png", str(png), "--svg", str(svg)]) == 0
    assert capsys.readouterr().out == f"{png}\n{svg}\n"
    with Image.open(png) as picture:
        assert picture.size == (1920, 1080)
    text = svg.read_text()
    assert text.startswith("<?xml")
    assert BLUE[0] in text
    assert VERMILLION[0] in text
    assert not (result_folder / "report.html").exists()
    assert main(["report", str(result_folder), "--svg", str(tmp_path / "again.svg"), "--quiet"]) == 0
    assert (tmp_path / "again.svg").read_text() == text


def test_a_slide_has_the_sentence_of_each_protocol(synthetic, tmp_path):
    maker = synthetic(concurrencies=(1, 2, 8), repetitions=1, protocols=("http", "grpc"))
    maker.write()
    assert main(["report", str(maker.folder), "--svg", str(tmp_path / "slide.svg"), "--quiet"]) == 0
    title = " ".join(re.findall(r"<!-- (.*?) -->", (tmp_path / "slide.svg").read_text(), re.DOTALL)).replace("\n", " ")
    assert "http: " in title
    assert "grpc: " in title


def test_shaded_ranges_are_drawn_and_bad_ones_are_not_in_the_legend(synthetic):
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    maker = synthetic(protocols=("http",), concurrencies=(1, 4), repetitions=1, overloaded=(4,), stalled=(1,))
    result = maker.write()
    (chart,) = time_group(result, read_timeline(maker.folder, result)).charts[:1]
    assert {one.is_bad for one in chart.spans} == {True, False}
    axes = draw(result, maker.folder, "timeline", Figure().subplots())
    drawn = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    ends = [end for patch in drawn for end in (patch.get_x(), patch.get_x() + patch.get_width())]
    assert ends == pytest.approx([end for one in chart.spans for end in (one.low, one.high)])
    named = {one.label for one in chart.spans if one.label and not one.is_bad}
    shown = axes.get_legend_handles_labels()[1]
    assert [label for label in shown if label in named] == sorted(named, key=shown.index)
    assert "not valid" not in shown


def test_foreign_text_in_a_picture_is_no_formula(synthetic, tmp_path):
    maker = synthetic(concurrencies=(1, 2), repetitions=1, name="$\\frac{$", status="unsuccessful", status_reason="$x_{1 \x1b[31mfailed")
    maker.write()
    assert main(["report", str(maker.folder), "--png", str(tmp_path / "slide.png"), "--quiet"]) == 0


def test_the_picture_of_a_sweep_is_that_of_its_ranking(tmp_path):
    folder = sweep_page(tmp_path).parent
    assert main(["report", str(folder), "--svg", str(tmp_path / "sweep.svg"), "--quiet"]) == 0
    assert many_colour(2)[0] in (tmp_path / "sweep.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--png", "slide.svg"], "--png slide.svg: expected a name that ends in .png"),
        (["--png", "slide.png", "--csv", "-"], "--png and --svg draw a result as it is: remove --table-only"),
        (["--png", "no/such/folder/slide.png"], "no/such/folder/slide.png: cannot be written: No such file or directory"),
    ],
)
def test_a_picture_that_cannot_be_drawn_says_why(result_folder, arguments, sentence, capsys):
    assert main(["report", str(result_folder), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_single_picture_is_of_a_single_result_that_has_a_chart(result_folder, tmp_path, capsys):
    assert main(["report", str(result_folder), str(result_folder), "--png", "slide.png"]) == 2
    assert "--png and --svg draw one picture: give a single result or sweep" in capsys.readouterr().err
    Synthetic(tmp_path / "empty", samples=0).write()
    assert main(["report", str(tmp_path / "empty"), "--png", str(tmp_path / "slide.png")]) == 2
    assert "there is no chart for a picture" in capsys.readouterr().err


def test_the_percentiles_are_those_of_the_values_in_milliseconds():
    values_ms = range(1, 1001)
    lines = percentile_distribution(BucketCounts.of([value * 1_000_000 for value in values_ms])).splitlines()
    assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    rows = [tuple(map(float, line.split()[:3])) for line in lines[2:] if not line.startswith("#")]
    for value_ms, share, count in rows:
        assert value_ms == pytest.approx(count, rel=2e-3)  # the n-th smallest value is n
        assert count >= math.ceil(share * 1000 - 1e-6)
    assert rows[-1][1:] == (1.0, 1000.0)
    figures = dict(re.findall(r"(Mean|StdDeviation|Max|TotalCount) +=\s*([\d.]+)", "\n".join(lines)))
    assert float(figures["Mean"]) == pytest.approx(500.5, rel=1e-3)
    assert float(figures["StdDeviation"]) == pytest.approx(math.sqrt((1000**2 - 1) / 12), rel=1e-3)
    assert float(figures["Max"]) == pytest.approx(1000, rel=1e-3)
