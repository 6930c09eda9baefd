"""Figures of several runs together: counts add up, and a mean is one over all that the runs counted."""

import dataclasses

import pytest

from perfkit.figures.resources import ComposingModelFigures, GpuFigures
from perfkit.perf_analyzer.pooled_figures import pooled_gpus, pooled_server
from tests.perf_analyzer.measured import server


def test_times_of_cached_answers_weigh_by_the_answers_that_took_them():
    first = dataclasses.replace(server(10, 0, 40, 0, count=100), cache_hits=60, cache_misses=40, cache_hit_ns=5000.0, executions=40)
    second = dataclasses.replace(server(40, 0, 10, 0, count=50), cache_hits=0, cache_misses=50, versions=("2",))
    pooled = pooled_server([first, second])
    assert (pooled.requests, pooled.inferences, pooled.executions, pooled.cache_hits, pooled.cache_misses) == (150, 150, 90, 60, 90)
    assert pooled.queue_ns == pytest.approx(20_000)  # (100 · 10 + 50 · 40) ÷ 150 µs
    assert pooled.compute_infer_ns == pytest.approx(1000 * (40 * 40 + 50 * 10) / 90)  # hits compute nothing
    assert pooled.cache_hit_ns == 5000.0
    assert pooled.mean_batch == pytest.approx(150 / 90)
    assert pooled.versions == ("2",)


def test_composing_models_are_pooled_by_name_and_one_run_or_none_stays_as_it_is():
    step = ComposingModelFigures("step", ("1",), 10, 0, 1000.0, None, 4000.0, None, 5, 2.0, success_ns=6000.0)
    runs = [
        dataclasses.replace(server(1, 1, 1, 1, count=10), composing_models=(step,)),
        dataclasses.replace(server(1, 1, 1, 1, count=30), composing_models=(dataclasses.replace(step, requests=30, queue_ns=5000.0),)),
    ]
    (model,) = pooled_server(runs).composing_models
    assert (model.name, model.requests, model.executions, model.queue_ns, model.compute_input_ns) == ("step", 40, 10, 4000.0, None)
    assert pooled_server(runs[:1]) is runs[0]
    assert pooled_server([]) is None


def test_means_of_a_gpu_weigh_by_time_and_its_maximum_is_the_largest():
    runs = [
        ((GpuFigures("u", "H", "metrics", utilization_mean=share, memory_used_max_bytes=used),), s)
        for share, used, s in ((0.2, 5, 3.0), (0.6, 4, 1.0))
    ]
    (gpu,) = pooled_gpus(runs)
    assert gpu.utilization_mean == pytest.approx(0.3)
    assert gpu.memory_used_max_bytes == 5
