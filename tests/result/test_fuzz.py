"""A short run of `benchmarks.fuzz_results`: randomly damaged files through the commands that read them."""

import pytest

from benchmarks.fuzz_results import QUICK_TARGETS, ViolationError, check, fuzz


def test_no_damage_ends_in_a_traceback_or_shows_an_absurd_figure(tmp_path, monkeypatch):
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    found, trials = fuzz(tmp_path, 0, lambda number: number < 40, QUICK_TARGETS)
    assert found.failures == []
    assert trials == sum(counts.total() for counts in found.outcomes.values()) == 40
    assert len(found.outcomes) > 6


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        (70, {"stdout": "", "stderr": "perfkit: x"}),
        (2, {"stdout": "", "stderr": "x"}),
        (0, {"stdout": "\x1b[31m", "stderr": ""}),
        (0, {"stdout": "", "stderr": "", "verdict.md": "a\n::error::x"}),
        (0, {"stdout": "throughput 1,000,000,000,000/s", "stderr": ""}),
        (0, {"stdout": "p50 nan ms", "stderr": ""}),
        (0, {"stdout": "p50 1e+30 s", "stderr": ""}),
    ],
)
def test_the_fuzzer_finds_what_it_looks_for(code, texts):
    with pytest.raises(ViolationError):
        check(("compare", "a", "b"), code, texts)


def test_figures_that_can_be_measured_pass():
    check(("compare", "a", "b"), 0, {"stdout": "throughput 480/s, p50 2.00 ms, max 3,600 s", "stderr": "perfkit: note: x"})
