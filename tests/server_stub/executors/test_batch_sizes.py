"""The batch sizes that are prepared on a GPU, their order, and how many waiting rows are executed together."""

import itertools

import pytest

from server_stub.executors.batch_sizes import affordable_instances, best_rows, by_importance, graph_sizes, session_sizes


def test_all_sizes_to_8_then_steps_of_a_quarter_of_the_power_of_two():
    assert graph_sizes(64) == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
    assert [graph_sizes(size)[-3:] for size in (1, 3, 9, 33)] == [(1,), (1, 2, 3), (7, 8, 9), (28, 32, 33)]
    for size, following in itertools.pairwise(graph_sizes(1024)):
        assert following - size <= max(1, size / 4), "padding adds a quarter of the rows at most"


def test_sessions_are_made_for_powers_of_two_and_the_largest_batch():
    assert [session_sizes(size) for size in (64, 12, 1, 2)] == [(1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 12), (1,), (1, 2)]


def test_what_a_budget_leaves_out_is_missed_least():
    assert by_importance(graph_sizes(16)) == [16, 1, 2, 4, 8, 14, 12, 10, 7, 6, 5, 3]
    assert by_importance((1,)) == [1]


@pytest.mark.parametrize(
    ("used", "free", "count"), [(1, 100, 3), (10, 39, 2), (10, 40, 3), (10, 19, 1), (10, 20, 2), (0, 1, 1), (10, 0, 1)]
)
def test_more_instances_take_at_most_half_of_what_is_free(used, free, count):
    assert affordable_instances(3, used, free) == count


def test_rows_are_executed_together_as_the_times_say():
    # proportional to the size: a cut wastes nothing, and padding does
    assert best_rows({1: 1.0, 2: 2.0, 4: 4.0}) == (0, 1, 2, 2, 4)
    # a fixed time: the more rows the better
    assert best_rows({1: 1.0, 4: 1.0, 8: 1.0}) == (0, 1, 2, 3, 4, 5, 6, 7, 8)
    # 17 rows padded to 20 take longer for each than 16 do; 18 do not
    assert best_rows({16: 16.0, 20: 17.5})[16:] == (16, 16, 18, 19, 20)


def test_no_other_number_of_rows_is_faster():
    seconds = {size: 1.5 + 0.17 * size for size in graph_sizes(64)}

    def rate_per_s(rows):
        return rows / next(seconds[size] for size in sorted(seconds) if size >= rows)

    for waiting, best in enumerate(best_rows(seconds)[1:], 1):
        assert 1 <= best <= waiting
        assert rate_per_s(best) == max(rate_per_s(rows) for rows in range(1, waiting + 1) if rows == waiting or rows in seconds)
