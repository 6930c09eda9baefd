"""The live view: its lines from known figures, and its drawing on a real pseudo-terminal."""

import dataclasses
import os
import re

import numpy as np
import pytest

from perfkit.recorder.recent import LiveFigures
from perfkit.report.live_view import LiveView, ended_lines, sparkline
from perfkit.report.screen import Screen
from perfkit.telemetry.messages import EndedPoint, PointBegins, ScreenLines
from perfkit.telemetry.series import Series
from tests.clocks import SettableClock
from tests.report.terminal import Terminal

S, MS = 1_000_000_000, 1_000_000
STYLE = re.compile(r"\x1b\[[0-9;]*m")
BEGINS = PointBegins(2, 3, "http, 400/s poisson", "response time", 10.0, 20.0)
SAMPLES = (
    Series("server_queue", "ns", {}, (1,), (1.5 * MS,)), Series("server_compute_infer", "ns", {}, (1,), (8.0 * MS,)),
    Series("server_mean_batch", "count", {}, (1,), (3.9,)), Series("gpu_utilization", "share", {"gpu": "GPU-1"}, (1,), (0.87,)),
    Series("gpu_power", "W", {"gpu": "GPU-1"}, (1,), (312.0,)), Series("worker_cpu_share", "share", {"worker": "1"}, (1,), (0.12,)),
    Series("worker_cpu_share", "share", {"worker": "2"}, (1,), (0.3,)), Series("machine_cpu_share", "share", {}, (1,), (0.64,)),
)  # fmt: skip


@pytest.fixture
def clock():
    return SettableClock()


@pytest.fixture
def view(terminal, clock):
    made = LiveView(opened(terminal), clock, lambda: SAMPLES, has_colour=False)
    yield made
    made.close()


def opened(terminal):
    screen = Screen.open(terminal.path)
    assert screen is not None
    return screen


def figures(second, replies, *, worker=0, failed=0, in_flight=4, times_ms=(), delays_ms=()):
    times, delays = (np.array(values, dtype=np.int64) * MS for values in (times_ms, delays_ms))
    return LiveFigures(worker, second * S, replies, failed, in_flight, times, delays)


def lines(text):
    return [line.rstrip() for line in STYLE.sub("", text.rpartition("\x1b[J")[2]).splitlines() if line.strip()]


def test_a_sparkline_rises_from_zero_to_its_maximum_and_leaves_out_what_is_missing():
    assert sparkline([0.0, 1.0, None, 4.0, 8.0], 10) == "▁▂ ▅█"
    assert sparkline([1.0, 2.0, 4.0], 2) == "▅█"
    assert [sparkline([0.0, 0.0], 2), sparkline([], 5), sparkline([1.0], 0)] == ["▁▁", "", ""]


def test_the_view_shows_the_run_the_load_points_figures_and_the_samples(view, terminal, clock):
    view.begin(BEGINS)
    for second in (1, 2):
        clock.ns = second * S
        view.add(figures(second, 400 * second, failed=3 * (second - 1), times_ms=range(1, 101), delays_ms=[2] * 100))
    shown = lines(terminal.text())
    assert shown[0] == "load point 2 of 3  http, 400/s poisson"
    assert re.fullmatch(r"whole run   ━+ 10%, about 18 s left; this point 2 of 10 s", shown[1])
    assert [re.split(r" {2,}", line)[:2] for line in shown[2:8]] == [
        ["throughput", "397/s"], ["p50", "50.0 ms"], ["p99", "99.0 ms"], ["errors", "3"], ["in flight", "4"], ["delay p99", "2.00 ms"],
    ]  # fmt: skip
    assert shown[2].endswith("██")
    assert shown[5].endswith("▁█")
    assert shown[8:] == [
        "server      queue 1.50 ms, infer 8.00 ms, batch 3.90",
        "GPU 0       87% busy, 312 W",
        "generator   busiest worker 30% of a CPU, machine 64% busy",
    ]


ENDED = (
    EndedPoint("http, concurrency 1", 3, 17.25, 53.3 * MS, 110 * MS, 0.0, is_valid=True),
    EndedPoint("http, concurrency 16", 2, 1234.0, 9.4 * MS, None, 0.0, is_valid=True, codes=("overloaded", "few_samples")),
    EndedPoint("grpc, concurrency 1", 1, 0.5, 2000.0 * MS, 2100 * MS, 0.25, is_valid=True),
    EndedPoint("grpc, concurrency 16", 1, 66.0, 241 * MS, 309 * MS, 0.0, is_valid=False, codes=("late_starts",)),
)


def test_load_points_that_have_ended_are_lines_in_columns_with_their_state():
    assert [line.plain.rstrip() for line in ended_lines(ENDED, 80)] == [
        "✓ http, concurrency 1    17.2/s  p50 53.3 ms  p99 110 ms  ×3",
        "! http, concurrency 16  1,234/s  p50 9.40 ms  p99      –  ×2  overloaded",
        "✗ grpc, concurrency 1    0.50/s  p50  2.00 s  p99 2.10 s      25.00% failed",
        "✗ grpc, concurrency 16   66.0/s  p50  241 ms  p99 309 ms      NOT VALID",
    ]
    assert [str(line.spans[0].style) for line in ended_lines(ENDED, 80)] == ["green", "yellow", "red", "red"]
    assert ended_lines((), 80) == []


def test_on_a_narrow_terminal_figures_of_ended_load_points_are_left_out_whole():
    texts = {width: ended_lines(ENDED[:1], width)[0].plain for width in (60, 55, 45, 39)}
    assert texts == {
        60: "✓ http, concurrency 1  17.2/s  p50 53.3 ms  p99 110 ms  ×3",
        55: "✓ http, concurrency 1  17.2/s  p50 53.3 ms  p99 110 ms",
        45: "✓ http, concurrency 1  17.2/s  p99 110 ms",
        39: "✓ http, concurrency 1  17.2/s",
    }
    (line,) = ended_lines([dataclasses.replace(ENDED[0], title="a" * 100)], 60)
    assert line.plain.startswith(f"✓ {'a' * 29}…  17.2/s")


def test_ended_load_points_stand_above_the_one_under_way_as_far_as_there_is_room(view, terminal):
    view.begin(dataclasses.replace(BEGINS, ended=ENDED))
    shown = lines(terminal.text())
    assert [line.split()[0] for line in shown[:5]] == ["✓", "!", "✗", "✗", "load"]
    terminal.resize(80, 15)  # twelve lines are of the load point under way
    view.draw()
    assert [line.split()[1] for line in lines(terminal.text())[:3]] == ["grpc,", "grpc,", "point"]


def test_workers_are_added_up_and_a_closed_loop_has_no_start_delay(view, terminal, clock):
    view.begin(PointBegins(1, 1, "http, concurrency 8", "service time", None, None))
    for second in (1, 2):
        view.add(figures(second, 100 * second, worker=1))
        clock.ns = second * S
        view.add(figures(second, 300 * second, worker=0, in_flight=5))
    shown = lines(terminal.text())
    assert shown[1] == "this point  2 s"
    assert [re.split(r" {2,}", line)[:2] for line in shown[2:7]] == [
        ["throughput", "400/s"], ["p50", "–"], ["p99", "–"], ["errors", "0"], ["in flight", "9"],
    ]  # fmt: skip
    assert not any("delay" in line for line in shown)


def test_a_percentile_of_too_few_replies_is_a_dash(view, terminal, clock):
    view.begin(BEGINS)
    clock.ns = S
    view.add(figures(1, 99, times_ms=[5] * 99))
    shown = lines(terminal.text())
    assert [re.split(r" {2,}", line)[:2] for line in shown[3:5]] == [["p50", "5.00 ms"], ["p99", "–"]]


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal_and_only_one_region_is_drawn(view, terminal, clock, columns):
    terminal.resize(columns, 30)
    view.begin(BEGINS)
    for second in range(1, 201):
        clock.ns = second * S
        view.add(figures(second, 400 * second, times_ms=[5] * 100))
    text = terminal.text()
    assert max(len(line) for line in lines(text)) < columns
    # each drawing but the first goes up over the one before, as many rows as that had
    heights = [part.count("\n") for part in text.split("\x1b[J")]
    ups = [int(up) for up in re.findall(r"\x1b\[(\d+)A", text)]
    assert ups == heights[:-1]


def test_a_narrower_window_erases_the_rows_into_which_it_broke_the_lines(view, terminal):
    view.begin(BEGINS)
    widths = [len(line) for line in STYLE.sub("", terminal.text()).splitlines()]
    terminal.resize(40, 30)
    view.draw()
    assert re.findall(r"\x1b\[(\d+)A", terminal.text()) == [str(sum(max(-(-width // 40), 1) for width in widths))]


def test_a_low_window_shows_the_first_lines(view, terminal):
    terminal.resize(80, 5)
    view.begin(BEGINS)
    assert terminal.text().count("\n") == 4


def test_lines_stay_above_the_view_and_foreign_commands_in_them_are_shown(view, terminal):
    view.begin(BEGINS)
    terminal.text()
    view.print_lines(["server: \x1b[2Jready"])
    text = terminal.text()
    assert text.index(r"server: \u001b[2Jready") < text.index("load point 2 of 3")
    view.close()
    assert re.fullmatch(r"\r\x1b\[\d+A\x1b\[J", terminal.text())


def test_a_chatty_server_does_not_stop_the_figures_of_the_view(terminal, clock):
    asked = []

    def latest():
        asked.append(clock.ns)
        return SAMPLES

    view = LiveView(opened(terminal), clock, latest, has_colour=False)
    view.begin(BEGINS)
    terminal.text()
    for tenth in range(1, 31):
        clock.ns = tenth * S // 10
        view.show(ScreenLines((f"server: line {tenth}", "server: more"), left_out=tenth == 30))
        if tenth % 10 == 0:
            view.add(figures(tenth // 10, 40 * tenth))
        text = terminal.text()
        assert text.index(f"server: line {tenth}") < text.index("server: more") < text.index("load point 2 of 3")
    assert "(left out: 1 lines before these)" in text
    assert any(line.startswith("throughput  400/s") for line in lines(text))
    assert asked == [0, 1 * S, 2 * S, 3 * S], "the samplers are asked once a second, not for each line"
    view.close()


def test_colours_are_left_out_where_they_are_not_wanted(terminal, clock):
    for has_colour in (False, True):
        made = LiveView(opened(terminal), clock, tuple, has_colour=has_colour)
        made.begin(BEGINS)
        made.close()
        assert ("36m" in terminal.text()) == has_colour


def test_a_terminal_that_takes_nothing_loses_pictures_and_stops_nobody(terminal, clock):
    view = LiveView(opened(terminal), clock, lambda: SAMPLES, has_colour=False)
    view.begin(BEGINS)
    for second in range(1, 400):  # nobody reads: the kernel's buffer holds a few kilobytes
        clock.ns = second * S
        view.add(figures(second, 400 * second))
    terminal.text()
    clock.ns = 400 * S
    view.add(figures(400, 999_999))
    terminal.text()
    clock.ns = 401 * S
    view.add(figures(401, 1_000_399))
    assert any(line.startswith("throughput  400/s") for line in lines(terminal.text())), "it is drawn again"
    view.close()


def test_lines_for_a_terminal_that_takes_nothing_are_bounded_and_counted(terminal):
    screen, written = opened(terminal), ""
    for number in range(1000):  # half a megabyte
        screen.print_above([f"{number} {'x' * 500}"])
    screen.draw([])
    while more := terminal.text():
        written += more
        screen.draw([])
    screen.print_above(["after them"])
    written += terminal.text()
    *shown, last = written.splitlines()
    remark = re.compile(r"\(left out while the terminal was stopped: (\d+) lines\)")
    # the kernel may take some bytes more between two lines, so that there is more than one remark
    left_out = sum(int(match[1]) for line in shown if (match := remark.fullmatch(line)))
    numbers = [int(line.split()[0]) for line in shown if line.strip() and not remark.fullmatch(line)]
    assert last == "after them"
    assert numbers == sorted(numbers)
    assert numbers[0] == 0
    assert (len(set(numbers)) + left_out, left_out > 0) == (1000, True)
    assert 2**18 <= len(numbers) * 503 <= 2**18 + 2**17
    screen.close()


def test_a_terminal_that_is_gone_ends_the_drawing_and_nothing_else(clock):
    terminal = Terminal()
    view = LiveView(opened(terminal), clock, tuple, has_colour=False)
    os.close(terminal.slave)
    os.close(terminal.master)
    view.begin(BEGINS)
    view.print_lines(["a line"])
    view.close()
    assert Screen.open("/dev/pts/no-such-terminal") is None


@pytest.mark.parametrize("counted", ["responses", "output_tokens"])
def test_of_streams_the_responses_or_tokens_of_all_workers_are_shown(view, terminal, clock, counted):
    view.begin(PointBegins(1, 1, "grpc, concurrency 8", "service time", None, None))
    for second in (1, 2):
        view.add(dataclasses.replace(figures(second, 100 * second, worker=1), **{counted: 800 * second}))
        clock.ns = second * S
        view.add(dataclasses.replace(figures(second, 100 * second, worker=0), **{counted: 700 * second}))
    assert [re.split(r" {2,}", line)[:2] for line in lines(terminal.text())[2:4]] == [
        ["throughput", "200/s"],
        [counted.removeprefix("output_"), "1,500/s"],
    ]


def test_of_streams_the_time_to_the_first_response_is_shown(view, terminal, clock):
    view.begin(PointBegins(1, 1, "http, 8/s", "service time", None, None))
    for worker, first_ms in ((0, 30), (1, 50), (2, 70)):
        clock.ns = S * (worker == 2)
        view.add(dataclasses.replace(figures(1, 100, worker=worker), first_ns=np.array([first_ms * 1_000_000])))
    assert [re.split(r" {2,}", line)[:2] for line in lines(terminal.text()) if line.startswith("first")] == [["first p50", "50.0 ms"]]
