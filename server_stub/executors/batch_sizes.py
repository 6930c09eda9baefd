"""The batch sizes that an executor prepares, and how many of the waiting rows it is best to execute together. Pure functions."""

from collections.abc import Mapping, Sequence


def graph_sizes(max_batch: int) -> tuple[int, ...]:
    """All sizes to 8, then steps of a quarter of the power of two below: 10, 12, 14, 16, 20, … up to `max_batch`, ascending.

    A batch padded to the next of them has less than a quarter more rows than it needs.
    """
    sizes = list(range(1, min(8, max_batch) + 1))
    while sizes[-1] < max_batch:
        sizes.append(min(sizes[-1] + 2 ** (sizes[-1].bit_length() - 3), max_batch))
    return tuple(sizes)


def session_sizes(max_batch: int) -> tuple[int, ...]:
    """Powers of two up to `max_batch`, ascending: where each size needs a session of its own, with a copy of the weights."""
    powers = [2**exponent for exponent in range(max_batch.bit_length()) if 2**exponent < max_batch]
    return (*powers, max_batch)


def by_importance(sizes: Sequence[int]) -> list[int]:
    """The order to prepare sizes in, so that what a budget leaves out is missed least: the largest, 1, powers of two, the others."""
    powers = [size for size in sizes if size & (size - 1) == 0 and size != sizes[-1]]
    return [sizes[-1], *powers, *(size for size in reversed(sizes[:-1]) if size not in powers)]


def affordable_instances(wanted: int, used_bytes: int, free_bytes: int) -> int:
    """How many of `wanted` instances fit: one exists and took `used_bytes`, the others may take half of what is free."""
    return max(1, min(wanted, 1 + free_bytes // (2 * max(1, used_bytes))))


def best_rows(seconds: Mapping[int, float]) -> tuple[int, ...]:
    """For each number of waiting rows, from 0, the number of them to execute together: that with the most rows a second.

    `seconds` are the times of an execution by prepared size; a batch is padded to the next size. If, say, 17 rows would be padded to 20,
    16 of them may be the better batch, and the last one waits for the next.
    """
    sizes = sorted(seconds)
    best = [0]
    for rows in range(1, sizes[-1] + 1):
        padded = next(size for size in sizes if size >= rows)
        candidates = [(rows / seconds[padded], rows), *((size / seconds[size], size) for size in sizes if size < rows)]
        best.append(max(candidates)[1])
    return tuple(best)
