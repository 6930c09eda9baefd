"""The counts of a load point: of requests, connections, responses, tokens and sequences."""

from typing import Annotated

from perfkit.figures.declaration import KEY, Figure
from perfkit.result.distribution import Distribution
from perfkit.result.part import Part


class Requests(Part):
    """Requests of the window by outcome: scheduled = dropped + sent, and sent is the sum of the outcomes after it."""

    scheduled: Annotated[int, Figure("scheduled", subject="requests", column="scheduled")]
    dropped: Annotated[int, Figure("dropped", recorded=KEY)]
    """Arrivals that were never sent."""
    sent: int
    ok: Annotated[int, Figure("ok", subject="requests", column="ok")]
    """Requests with a correct answer in time."""
    rejected: int
    """Answered with an error."""
    timed_out: int
    """Not answered in time."""
    connect_failed: int
    """Not sent, as no connection came about."""
    broken: int
    """Lost with their connection."""
    invalid_output: int
    """Answered with outputs other than expected."""
    unfinished: int
    """Not answered until the end of the drain."""

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of requests of each outcome."""
        return {name: count for name, count in self if name not in ("scheduled", "dropped", "sent")}

    @property
    def timed(self) -> int:
        """Those whose times are in the distributions: the answered ones, and those without an answer at their age."""
        return self.ok + self.invalid_output + self.timed_out + self.unfinished

    @property
    def untimed(self) -> int:
        """The others, which failed at once."""
        return self.sent - self.timed


class Connections(Part):
    """Connections opened during the load point, and those of them that replaced a lost one."""

    opened: Annotated[int, Figure("opened", subject="connections", column="connections")]
    reconnects: int
    retried: int = 0
    """Requests sent again because an idle connection was closed before any byte of their answer."""
    rotated: int = 0
    """Connections closed after the requests or the time of `target.connections`."""
    connect_time_ns: Annotated[Distribution | None, Figure("connect time", "ns", "connections", column="connect")] = None
    """How long connections took to open: the name's resolution, TCP, TLS, HTTP/2's settings. None in results of earlier versions."""


class Responses(Part):
    """The responses to streamed requests. A final marker without data is not a response."""

    count: Annotated[int, Figure(recorded="responses")]
    """Responses to the requests of the window."""
    per_s: Annotated[float, Figure("responses", "per_s", "streams", "responses_ended", column="responses_per_s")]
    """Responses that came in the window, per second."""
    without_response: Annotated[int, Figure("without response", subject="streams", recorded=KEY)]
    """Requests of the window that ended without any response."""
    cancelled: Annotated[int, Figure("cancelled", subject="streams", recorded=KEY)]
    """Requests of the window that the load generator cancelled: they timed out, or were unfinished at the end."""


class Tokens(Part):
    """The tokens of the requests of the window that were answered ok, as the server reports them; perfkit counts none itself."""

    input: Annotated[int, Figure("input tokens", subject="tokens", recorded="input_tokens", column="input_tokens")]
    """Those of the prompts, of all answers that report them together."""
    output: Annotated[int, Figure("output tokens", subject="tokens", recorded="output_tokens", column="output_tokens")]
    """Those of the answers, reasoning included."""
    reported: Annotated[int, Figure("answers with usage", subject="tokens", recorded="tokens_reported")]
    """The answers that report their tokens."""
    several_in_event: Annotated[int, Figure(recorded=KEY)]
    """Streamed answers with more tokens than events, so that a gap between events is not the time of a token."""


class SequenceCounts(Part):
    """Sequences by what happened to them in the window; one that is open at either end of it is not in all of the counts."""

    started: Annotated[int, Figure("started", subject="sequences", recorded="sequences_started")]
    """Sequences whose first request was due in the window."""
    ended: Annotated[int, Figure("ended", subject="sequences", recorded="sequences_ended", column="sequences_ended")]
    """Sequences whose last request was answered."""
    failed: Annotated[int, Figure("failed", subject="sequences", recorded="sequences_failed", column="sequences_failed")]
    """Sequences that ended early because a request failed."""
