from perfkit.report.live import LiveGate
from tests.simulated_pairs import make_pairs


def lines(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_each_pair_is_announced_with_the_time_left_to_the_next_and_to_the_last_look(capsys):
    live = LiveGate(quiet=False)
    live.gate_started((12, 16, 20), 3, 0)
    live.pair_started("control", 2, ("baseline", "candidate"), 20.0)
    live.pair_started("pair", 0, ("baseline", "candidate"), None)
    live.pair_started("pair", 9, ("candidate", "baseline"), 20.0)
    live.pair_started("pair", 19, ("candidate", "baseline"), 120.0)
    assert lines(capsys) == [
        "control pair 3 of 3, 20 s left: baseline first",
        "pair 1 of 12 to 20: baseline first",
        "pair 10 of 12 to 20, 60 s to 4 min left: candidate first",
        "pair 20 of 20, 2 min left: candidate first",
    ]


def test_a_finished_pair_shows_its_changes_or_why_it_is_discarded(capsys):
    live = LiveGate(quiet=False)
    (good,), (bad,) = make_pairs(1, 1.25, noise=0.0), make_pairs(1, valid=False, codes=["late_starts"])
    live.pair_finished(good)
    live.pair_finished(bad)
    assert lines(capsys) == [
        "  http, concurrency 4: throughput -20.0%, p50 +25.0%, p99 +25.0%",
        "  http, 70/s poisson: throughput -20.0%, p50 +25.0%, p99 +25.0%",
        "  not used, and measured again: http, concurrency 4: Said of late_starts.",
    ]


def test_a_quiet_gate_prints_nothing(capsys):
    live = LiveGate(quiet=True)
    live.gate_started((12,), 0, 3)
    live.pair_started("pair", 3, ("baseline", "candidate"), None)
    live.pair_finished(make_pairs(1)[0])
    assert lines(capsys) == []
