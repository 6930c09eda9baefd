"""Trends with their steps in words."""

from collections.abc import Iterator, Sequence

from perfkit.history.trend import Step, Trend

Found = Sequence[tuple[Trend, Sequence[Step]]]
_SHORT_COMMIT = 10
_FEWEST = 10  # of fewer results no order is so rare that it would be a step: the likeliest two of C(9, 4) come by chance in 1.6 %


def steps_text(found: Found) -> str:
    """A paragraph for each trend that has steps, and how many have none."""
    lines = []
    for trend, steps in found:
        if steps:
            lines += [f"{trend.title} ({len(trend.values)} results)", *(line for step in steps for line in _lines(step)), ""]
    still = sum(not steps for _, steps in found)
    short = sum(len(trend.values) < _FEWEST for trend, _ in found)
    too_few = f" {short} of them have fewer than {_FEWEST} results, too few for any to show." if short else ""
    lines.append(f"{still} of {len(found)} trends have no step.{too_few}")
    lines.append(
        "A series without a step shows one with a chance of about 1 %. Steps are seen some results after they happened: they gate nothing."
    )
    return "\n".join(lines) + "\n"


def _lines(step: Step) -> Iterator[str]:
    behind, before = short_commit(step.commit), short_commit(step.previous_commit)
    commits = (
        f"the same commit {behind} as before" if step.commit and step.commit == step.previous_commit else f"commit {behind}, after {before}"
    )
    word = "worse" if step.is_worse else "better"
    yield f"  {step.started_at}: {100 * (step.ratio - 1):+.1f} % ({word}), p {step.p:.2g}: {commits}"
    yield from (f"    at the same time: {sentence}" for sentence in step.environment)


def short_commit(commit: str) -> str:
    """The beginning of a commit's id."""
    return commit[:_SHORT_COMMIT] or "unknown"
