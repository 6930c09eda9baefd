"""Reports drawn in a process of their own (`drawing_process`) after a run, and what is told where one is missing."""

import asyncio
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from perfkit.errors import MeasurementWarning, PerfkitError
from perfkit.process.start_module import DRAWING, start_module

if TYPE_CHECKING:
    from perfkit.cli.signals import SignalHandler
    from perfkit.result.model import Result


_DRAWN_WITHIN_S = 300


def draw_report(folder: pathlib.Path, *options: str, meanwhile: Callable[[], None], signals: "SignalHandler") -> str:
    """Draws the report of a result folder, and says why it is missing; empty if it was drawn. An interrupt ends the drawing.

    `meanwhile` is called while it is drawn.
    """
    try:
        return signals.run(_draw([*options, str(folder)], meanwhile))
    except asyncio.CancelledError:
        return "it was interrupted"
    except OSError as error:
        return f"its process could not be started: {error}"


async def _draw(arguments: list[str], meanwhile: Callable[[], None]) -> str:
    async with start_module(DRAWING, on_line=lambda _: None, stop_within_s=0.0) as child:
        child.send(arguments)
        await asyncio.sleep(0)  # it is told in the event loop's next turn, and draws while `meanwhile` runs
        try:
            meanwhile()
        finally:  # what cannot be printed is drawn all the same
            how = await child.wait_for_end(_DRAWN_WITHIN_S)
        if not child.ended.done():
            return f"its process {child.pid} had not ended after {_DRAWN_WITHIN_S} s and was killed"
        return "" if child.ended.result() == 0 else f"its process {how}"


def add_missing_report(folder: pathlib.Path, result: "Result", reason: str) -> tuple["Result", str]:
    """Adds the warning `report_missing` to a stored result; returns the result, and the note for the command's last line."""
    from perfkit.result.file import replace_result

    note = f"the report was not drawn: {reason.rstrip('.')}; `perfkit report {folder}` draws it"
    warning = MeasurementWarning("report_missing", f"{note[0].upper()}{note[1:]}.")
    result = result.model_copy(update={"warnings": (*result.warnings, warning)})
    try:
        replace_result(folder, result)
    except PerfkitError as error:
        return result, f"{note}; and {error}"
    return result, note
