"""The progress of runs and gates on stderr."""

import pytest

from perfkit.report.live import LiveGate, LiveReport, describe_point
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
    (good,), (bad,) = make_pairs(1, 1.25, noise=0.0), make_pairs(1, valid=False, codes=["generator_bound"])
    live.pair_finished(good)
    live.pair_finished(bad)
    assert lines(capsys) == [
        "  http, concurrency 4: throughput -20.0%, p50 +25.0%, p99 +25.0%",
        "  http, 70/s poisson: throughput -20.0%, p50 +25.0%, p99 +25.0%",
        "  not used, and measured again: http, concurrency 4: Said of generator_bound.",
    ]


def test_a_quiet_gate_prints_nothing(capsys):
    live = LiveGate(quiet=True)
    live.gate_started((12,), 0, 3)
    live.pair_started("pair", 3, ("baseline", "candidate"), None)
    live.pair_finished(make_pairs(1)[0])
    assert lines(capsys) == []


def test_a_terminal_shows_the_pair_under_way_and_the_medians_in_place_and_keeps_messages(terminal, monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.fileno", lambda: terminal.slave, raising=False)
    live = LiveGate(quiet=False)
    live.message("warm-up of every run: 500 ms")
    live.gate_started((12,), 0, 0)
    live.pair_started("pair", 0, ("baseline", "candidate"), None)
    for number, slowdown in enumerate((1.1, 1.3, 1.25), start=1):
        live.pair_finished(make_pairs(1, slowdown, noise=0.0)[0])
        live.pair_started("pair", number, ("candidate", "baseline"), 20.0)
    live.pair_finished(make_pairs(1, valid=False, codes=["generator_bound"])[0])
    text = terminal.text()
    assert text.startswith("warm-up of every run: 500 ms\n")
    assert "  not used, and measured again: http, concurrency 4: Said of generator_bound.\n" in text
    assert text.rpartition("\x1b[J")[2].splitlines()[-4:] == [
        "pair 4 of 12, 3 min left: candidate first",
        "medians of 3 pairs:",
        "  http, concurrency 4  throughput  -20.0%  p50  +25.0%  p99  +25.0%",
        "  http, 70/s poisson   throughput  -20.0%  p50  +25.0%  p99  +25.0%",
    ]
    live.close()
    assert terminal.text().endswith("\x1b[J")
    assert lines(capsys) == []


@pytest.mark.parametrize("quiet", [False, True])
def test_a_run_prints_a_line_per_event_unless_quiet(synthetic, capsys, quiet):
    (point,) = synthetic(protocols=("http",), concurrencies=(4,), cpu_share=0.95).write().summary
    live = LiveReport(quiet=quiet)
    live.server_output("ready")
    live.target_ready("http http://127.0.0.1:8000")
    live.metrics_published("http://127.0.0.1:9400/metrics")
    live.note_added("No GPU was found.")
    live.point_started(0, 2, "http, concurrency 4", 5.0, 10.0)
    live.point_finished(point)
    live.say("interrupted")
    printed = lines(capsys)
    assert printed.pop() == "interrupted"
    expected = [
        "server: ready",
        "target: http http://127.0.0.1:8000",
        "prometheus: http://127.0.0.1:9400/metrics",
        "note: No GPU was found.",
        f"[1/2] {describe_point(point)}, NOT VALID",
    ]
    assert printed == ([] if quiet else expected)


def test_a_terminal_shows_the_load_point_under_way(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    live = LiveReport(quiet=False)
    live.point_started(1, 3, "http, concurrency 4", 5.0, 10.0)
    live.note("a note")
    assert capsys.readouterr().err == "\r\033[K[2/3] http, concurrency 4, 5 s; about 10 s left …\r\033[Ka note\n"


def test_with_a_live_view_a_finished_load_point_has_no_line_of_its_own(synthetic, capsys):
    (point,) = synthetic(protocols=("http",), concurrencies=(4,)).write().summary
    live, shown = LiveReport(quiet=False), []

    def show_line(text):
        shown.append(text)
        return True

    live.screen_opened(show_line)
    live.point_started(0, 2, "http, concurrency 4", 5.0, 10.0)
    live.point_finished(point)
    live.note("a note")
    live.screen_closed()
    live.point_finished(point)
    assert shown == ["a note"]
    assert lines(capsys) == [f"[2/2] {describe_point(point)}"]


def test_a_terminal_shows_a_long_note_wrapped_at_words(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    note = "There is no NVIDIA driver on this machine (libnvidia-ml.so.1 was not found): no GPU is sampled."
    LiveReport(quiet=False).note_added(note)
    printed = capsys.readouterr().err.replace("\r\033[K", "").splitlines()
    assert len(printed) == 2
    assert max(map(len, printed)) <= 80
    assert " ".join(printed) == f"note: {note}"
