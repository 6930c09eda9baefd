"""The comparison of kinds of traffic: ratios and targets, and the models that its cases need."""

import pytest

from benchmarks.peers.clients import ClientError, Reported, Usage
from benchmarks.peers.traffic import ANALYZER, CASES, OWN, Figures, ratios_of, round_figures
from benchmarks.peers.triton import MODELS, ODD_MODELS, TRAFFIC_MODELS


def test_the_cost_of_a_request_is_the_slope_between_the_runs():
    short = Reported(100, 90.0, 10.0, Usage("", 1.0, 9.0))
    figures = round_figures("c", short, Reported(600, 100.0, 11.0, Usage("", 1.5, 9.0)))
    assert (figures.per_s, figures.p50_us, round(figures.cpu_us)) == (100.0, 11.0, 1000)
    with pytest.raises(ClientError, match="its short run"):
        round_figures("c", short, Reported(100, 100.0, 11.0, Usage("", 1.5, 9.0)))


@pytest.mark.parametrize(
    ("own", "met"),
    [
        (Figures(100.0, 10.0, 5.0), [True, True, True]),
        (Figures(95.0, 10.5, 10.0), [True, True, True]),
        (Figures(94.0, 10.6, 10.1), [False, False, False]),
    ],
)
def test_perfkit_may_be_five_percent_behind_but_never_dearer(own, met):
    ratios = ratios_of({OWN: [own], ANALYZER: [Figures(100.0, 10.0, 10.0)]})
    assert [ratio.is_met for ratio in ratios] == met


def test_every_case_has_its_model():
    for case in CASES.values():
        assert (TRAFFIC_MODELS / case.model / "config.pbtxt").exists()


@pytest.mark.parametrize("path", [path for folder in (MODELS, ODD_MODELS, TRAFFIC_MODELS) for path in folder.glob("*/1/model.py")], ids=str)
def test_the_models_are_python(path):
    # a checkout without symbolic links holds the name of a file in its place
    assert "class TritonPythonModel" in path.read_text(encoding="utf-8")
