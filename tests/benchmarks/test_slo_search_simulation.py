"""The short form of the simulated capacity searches: their truths, a few searches, and the file from which they are resumed."""

import math

import numpy as np
import pytest

from benchmarks import slo_search_simulation
from benchmarks.simulated_queues import gamma_arrivals, service_times
from benchmarks.simulated_search import Queue, SearchResult, longest_times, pooled_p99, search, service_survival
from benchmarks.slo_search_simulation import CELLS, CHUNK, EXIT_0, Cell, Chunk, ChunkFile, Figures, Truth, report

DETERMINISTIC = Queue(0, 1, 1, 0.8)
P99 = 11.359  # of M/D/1, in service times


def test_the_cells_cover_the_grid_with_its_corners():
    assert len(CELLS) == len(set(CELLS)) == 40
    corners = {(cell.queue.service_cv, cell.queue.arrivals_cv, cell.queue.servers, cell.requests) for cell in CELLS}
    assert {
        (cv, bursts, servers, requests) for cv in (0.3, 3) for bursts in (1, 3) for servers in (1, 8) for requests in (300, 30_000)
    } <= corners
    assert any(cell.queue.is_batching for cell in CELLS)


@pytest.mark.parametrize("queue", [Queue(0.3, 1, 1, 0.8), Queue(2, 1, 1, 0.5), Queue(1, 2, 1, 0.6)], ids=lambda queue: queue.key)
def test_the_closed_form_is_the_p99_of_a_simulated_queue(queue):
    rng = np.random.default_rng(3)
    arrivals = gamma_arrivals(queue.capacity, 2e6 / queue.capacity, queue.arrivals_cv, rng)
    # the standard error is at most 6 % (from 30 runs of a tenth of the length)
    assert np.mean(queue.times(arrivals, rng) > queue.exact_p99()) == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("cv", [0, 0.3, 1, 2])
def test_the_survival_function_is_that_of_the_simulated_service_times(cv):
    served = service_times(cv, 100_000, np.random.default_rng(1))
    at = np.array([0.5, 0.99, 1.5, 4.0])
    assert service_survival(cv, at) == pytest.approx([np.mean(served > time) for time in at], abs=0.007)


def test_the_p99_of_a_long_run_comes_from_all_its_parts():
    queue = Queue(1, 1, 1, 0.5)
    p99, error = pooled_p99([longest_times(queue, 150_000, seed) for seed in range(4)])
    assert p99 == pytest.approx(queue.exact_p99(), rel=0.05)
    assert 0 < error < 0.1


def test_searches_with_five_thousand_requests_find_the_capacity_of_a_deterministic_server():
    """A coverage of 80 % would give 13 of 15 or more, as here, with a chance of 40 %, one of 50 % with 0.4 %."""
    found = [search(DETERMINISTIC, P99, 5_000, seed) for seed in range(15)]
    good = [result for result in found if result.reason in EXIT_0]
    assert len(good) >= 13
    assert sum(result.low <= 1 <= result.high for result in good) >= 13
    assert all(abs(result.capacity - 1) < 0.06 for result in good)
    assert max(result.took_s for result in found) <= 3600


def test_a_search_is_a_function_of_its_seed():
    first, again, other = (search(DETERMINISTIC, P99, 1_000, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_finished_chunks_are_read_again_and_an_unfinished_line_is_not(tmp_path):
    store, chunk = (
        ChunkFile(tmp_path / "searches.jsonl"),
        Chunk(CELLS[0], 20, [SearchResult(0.9, 0.8, math.inf, 9, "budget", "none", 60.0, 0.0)], 1.5),
    )
    assert store.read() == {}
    store.append(chunk)
    with (tmp_path / "searches.jsonl").open("a") as stream:
        stream.write('{"queue": "serv')
    assert store.read() == {chunk.key: chunk}
    store.append(chunk)
    assert store.read() == {chunk.key: chunk}


def test_other_code_starts_the_file_anew(tmp_path, monkeypatch, capsys):
    file = tmp_path / "searches.jsonl"
    store = ChunkFile(file)
    store.read()
    store.append(Chunk(CELLS[0], 0, [], 1.0))
    monkeypatch.setattr(slo_search_simulation, "_digest", lambda *_: "changed")
    assert ChunkFile(file).read() == {}
    assert "starting anew" in capsys.readouterr().out
    assert len(file.read_text().splitlines()) == 1


def test_the_report_names_the_worst_cell_and_counts_the_cells_that_meet_the_target():
    good, bad, rare = (Cell(name, DETERMINISTIC, requests) for name, requests in (("good", 300), ("bad", 1_000), ("rare", 300)))
    inside, above = (SearchResult(1.0, low, 1.05, 9, "precision", "passed", 60.0, 0.0) for low in (0.95, 1.01))
    short = SearchResult(0.0, 0.0, math.inf, 3, "too_short", "none", 60.0, 120.0)
    figures = {
        good: Figures([inside] * 18 + [above] * 2, 1.0),
        bad: Figures([inside, above] * 10 + [short] * 20, 1.0),
        rare: Figures([inside, above, short], 1.0),
    }
    lines = report([good, bad, rare], {DETERMINISTIC: Truth(11.36, None)}, figures, CHUNK)
    assert "in 1 of 2 cells, and in 69% of all 42 such searches" in lines[4]
    assert "The worst of these cells: bad with 1,000 requests, 50% of 20." in lines[4]
    assert (
        lines[5]
        == "In the other 1 cells, fewer than 20 of the 20 searches end so, too few to judge a cell; of all 2 together, 1 contain it."
    )
    assert figures[bad].cells()[:3] == ("50%", "20 / 0 / 0", "50%")
    assert [figures[cell].cells()[-1] for cell in (good, bad, rare)] == ["yes", "no", "too few"]
