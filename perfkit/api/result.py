"""A measured or stored result with its views: data frames, plots, and the report in a notebook."""

import html
import os
import pathlib
import shutil
import tempfile
import weakref
from typing import TYPE_CHECKING, Self

import pydantic

from perfkit.errors import ResultError
from perfkit.override import override
from perfkit.result import model
from perfkit.result.file import read_result
from perfkit.result.frames import addresses_frame, histograms_frame, intervals_frame, points_frame, with_types
from perfkit.result.telemetry_file import telemetry_frame
from perfkit.text import safe_lines, sentence

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from perfkit.report.matplotlib_charts import Plot


class TemporaryFolder:
    """A temporary folder, removed with the last result that refers to it or at the end of the process."""

    def __init__(self) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="perfkit-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        """Removes the folder now."""
        self._finalizer()


class Result(model.Result):
    """The contents of `result.json`, and views of the result folder.

    Views that read the folder raise ResultError if it is missing, or if its files do not fit the result.
    """

    _folder: pathlib.Path | None = pydantic.PrivateAttr(default=None)
    _temporary: TemporaryFolder | None = pydantic.PrivateAttr(default=None)

    @classmethod
    def of(cls, result: model.Result) -> Self:
        """Makes a result with views from one without."""
        return cls(**dict(result))

    def stored_in(self, folder: pathlib.Path, temporary: TemporaryFolder | None = None) -> Self:
        """Sets the result folder, and the temporary folder that this result keeps alive; returns this result."""
        self._folder, self._temporary = folder, temporary
        return self

    @property
    def folder(self) -> pathlib.Path:
        """The result folder; that of a run without `out` is removed with the result. Raises ResultError if there is none."""
        if self._folder is None:
            raise ResultError("this result has no folder: read it by perfkit.load_result")
        return self._folder

    def to_frame(self, *, repetitions: bool = False) -> "pd.DataFrame":
        """A data frame with a row for each load point, repetitions pooled; with `repetitions`, a row for each repetition.

        Column names carry the units: `_ns`, `_per_s`, `_j`. Shares and error rates lie between 0 and 1. Integers that may be missing,
        such as percentiles with too few samples, have pandas' type Int64.
        """
        return with_types(points_frame(self.points if repetitions else self.summary))

    def addresses(self, *, repetitions: bool = False) -> "pd.DataFrame":
        """A data frame with a row for each address of each load point; empty for a target with a single address."""
        return with_types(addresses_frame(self.points if repetitions else self.summary))

    def intervals(self) -> "pd.DataFrame":
        """A data frame with a row for each second of each repetition and kind of time; see `intervals_frame`."""
        return intervals_frame(self.folder, self)

    def histograms(self) -> "pd.DataFrame":
        """A data frame with a row for each non-empty bucket of each load point's histogram; see `histograms_frame`."""
        return histograms_frame(self.folder, self)

    def telemetry(self) -> "pd.DataFrame":
        """A data frame with a row for each telemetry sample and the columns of the telemetry file; empty without samples.

        `point` is the index in `summary`. `unit` is the unit of `value`. `window_s` is the time since the window's start in seconds.
        """
        return telemetry_frame(self.folder)

    def plot(self, kind: "Plot" = "percentiles", ax: "Axes | None" = None) -> "Axes":
        """Draws a plot into `ax`, or into a new pyplot figure, and returns the axes. Times are in milliseconds.

        `percentiles`: times against the percentile, a line per load point. `load`: times against throughput, a marker per load point.
        `timeline`: p50 and p99 over time, in steps of a second or, in runs of more than 12 minutes, longer ones; repetitions follow one
        another. Raises ResultError, and UsageError for another kind.
        """
        from perfkit.report.matplotlib_charts import draw

        return draw(self, self.folder, kind, ax)

    def report(self, *, height_px: int = 800) -> "InlineReport":
        """The page of `report.html`, which a notebook displays; it is written first if the folder has none."""
        from perfkit.report.run import write_reports

        page = self.folder / "report.html"
        if not page.exists():
            write_reports(self.folder)
        try:
            return InlineReport(page.read_text(encoding="utf-8"), height_px)
        except (OSError, UnicodeDecodeError) as error:
            raise ResultError(f"{page}: cannot be read: {error}; `perfkit report {self.folder}` draws it again") from None

    @override
    def __str__(self) -> str:
        """What `perfkit run` prints: the summary, what needs attention, and the status unless it is complete."""
        from perfkit.report.run import status_sentence
        from perfkit.report.terminal import attention, fill, terminal_width
        from perfkit.report.terminal_summary import summary_text

        found = [f"{title}{sentence(text)}" for title, _, text in attention(self)]
        rest = [fill(text, terminal_width()) for text in (*found, status_sentence(self)) if text]
        return safe_lines("\n".join([summary_text(self).strip(), "", *rest]).strip())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The top of the page: headline, answer, main chart, load points and warnings."""
        from perfkit.report.notebook import result_fragment

        return result_fragment(self)


class InlineReport:
    """A page that a notebook displays in a sandboxed iframe, without access to the notebook."""

    def __init__(self, page: str, height_px: int) -> None:
        self.page, self._height_px = page, height_px

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self._height_px}px;border:0"
        return f'<iframe title="perfkit report" sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{html.escape(self.page)}"></iframe>'


def load_result(path: str | os.PathLike[str]) -> Result:
    """Reads and checks a result folder or its `result.json`; raises ResultError."""
    result, folder = read_result(pathlib.Path(path))
    return Result.of(result).stored_in(folder.absolute())
