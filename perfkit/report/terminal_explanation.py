"""What `perfkit explain` prints: where the time of traced requests went, and the arithmetic of the summary's figures."""

from perfkit.report.explanation import explain
from perfkit.report.terminal_summary import breakdown_lines
from perfkit.report.terminal_table import fill, terminal_width
from perfkit.result.model import Result
from perfkit.text.foreign import sentence


def explanation_text(result: Result) -> str:
    """The explanation of a result, a block for each load point."""
    width = terminal_width()
    lines = breakdown_lines(result.summary, width)
    for point in result.summary:
        repetitions = sum(one.key == point.key for one in result.points)
        pooled = f", {repetitions} repetitions pooled" if repetitions > 1 else ""
        lines += [sentence(f"{point.title}{pooled}{'' if point.valid else ', NOT VALID'}")]
        lines += [fill(f"  {sentence(one.text)}", width) for one in explain(point, result)]
        lines += [""]
    return "\n".join(lines)
