"""The scan of a configuration, on servers whose throughput is a formula."""

import pytest

from perfkit.gate.tune.ladder import CONCURRENCIES, Scanned, best_step, next_step


def scan(throughput, meets=lambda _: True, start=0, ladder=CONCURRENCIES):
    """The concurrencies that are scanned, and the one that is chosen."""
    scanned: list[Scanned] = []
    while (step := next_step(scanned, start, len(ladder))) is not None:
        assert step not in {one.step for one in scanned}
        scanned.append(Scanned(step, throughput(ladder[step]), meets(ladder[step])))
    best = best_step(scanned)
    return [ladder[one.step] for one in scanned], None if best is None else ladder[best]


def test_a_scan_goes_up_until_the_throughput_has_levelled_off():
    assert scan(lambda n: 100 * min(n, 4)) == ([1, 2, 3, 4, 6, 8], 4)


def test_a_step_without_a_rise_does_not_end_the_scan():
    assert scan({1: 10, 2: 20, 3: 20, 4: 30, 6: 30, 8: 30}.__getitem__)[1] == 4


def test_a_scan_ends_where_the_slo_is_missed():
    assert scan(lambda n: 100 * n, lambda n: n <= 6) == ([1, 2, 3, 4, 6, 8], 6)


def test_a_scan_that_starts_beyond_the_slo_goes_down():
    assert scan(lambda n: 100 * min(n, 4), lambda n: n <= 2, start=5) == ([8, 6, 4, 3, 2], 2)


def test_a_scan_that_starts_beyond_the_best_goes_down_to_it():
    assert scan(lambda n: 1000 / abs(n - 3.1), start=6)[1] == 3


def test_a_scan_that_starts_below_the_best_goes_up_alone():
    assert scan(lambda n: 100 * min(n, 8), start=3) == ([4, 6, 8, 12, 16], 8)


@pytest.mark.parametrize("start", [0, 4])
def test_no_step_is_chosen_where_the_slo_is_missed_at_all(start):
    tried, best = scan(lambda n: n, lambda _: False, start=start)
    assert best is None
    assert tried[-1] == 1


def test_the_ladder_ends():
    assert scan(lambda n: n, ladder=(1, 2, 4)) == ([1, 2, 4], 4)
