"""Who is told how a run goes on."""

from perfkit.result.model import Point


class Observer:
    """Who is told how a run goes on; this one keeps it all to itself."""

    def server_line(self, line: str) -> None:
        """The bundled server said something."""

    def published(self, url: str) -> None:
        """The run is told to Prometheus there."""

    def target_ready(self, description: str) -> None:
        """The target answers, and knows the model."""

    def noted(self, note: str) -> None:
        """Something of the run as a whole, each once, such as that there is no GPU to sample."""

    def point_started(self, index: int, total: int, description: str, seconds: float | None, seconds_left: float | None) -> None:
        """A load point starts; its length and what is left of the run with it, None where a number of requests ends it."""

    def point_finished(self, finished: Point) -> None:
        """A load point of one repetition was measured."""
