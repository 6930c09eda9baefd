"""The load points of a result, computed from measured windows, pooled over repetitions, and judged."""
