"""The counts of a load point: of requests, connections, responses, tokens and sequences."""

from typing import Annotated

from pydantic import Field

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
    abandoned: Annotated[int, Figure("given up", subject="requests", column="abandoned")] = 0
    """Given up by the client on purpose, as `load.abandon` says: neither answered nor failed."""
    answered_early: Annotated[int, Figure("answered early", recorded="answered_early")] = 0
    """Requests that `load.abandon` chose and that ended before they were given up. They count by their outcome, but are in no distribution of times: the
    slow ones of the requests chosen have no whole time, so that the quick ones alone would make the percentiles too low."""

    @property
    def judged(self) -> int:
        """The scheduled requests that could succeed or fail: all but those given up, of which errors are a share."""
        return self.scheduled - self.abandoned

    @property
    def failed(self) -> int:
        """The scheduled requests that were neither answered ok nor given up; dropped ones included."""
        return self.judged - self.ok

    @property
    def error_rate(self) -> float:
        """1 - ok / judged."""
        return self.failed / self.judged if self.judged else 0.0

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of requests of each outcome."""
        return {name: count for name, count in self if name not in ("scheduled", "dropped", "sent", "answered_early")}

    @property
    def timed(self) -> int:
        """Requests whose times are in the distributions: the answered ones, and those without an answer at their age; none that `load.abandon` chose."""
        return self.ok + self.invalid_output + self.timed_out + self.unfinished - self.answered_early

    @property
    def untimed(self) -> int:
        """Sent requests whose times are not in the distributions, since they failed at once."""
        return self.sent - self.timed - self.abandoned - self.answered_early


class Abandonment(Part):
    """The requests that the client gave up, and what the server executed for them all the same."""

    after_ns: Annotated[Distribution | None, Figure("given up after", "ns", "requests", "abandoned_time", column="abandoned_after")]
    """How long after their start the requests of the window were given up."""
    executed: int | None = None
    """Requests of the whole load point that the server executed to their end and that perfkit saw no answer of; None if not known, as of streams."""
    wasted_share: Annotated[float | None, Figure("wasted", "share", "requests", column="wasted_share")] = None
    """`executed` ÷ all requests that the server executed: by their mean time, the share of its computing that went into answers nobody took. Of
    streams `wasted_ns` ÷ the server's computing time."""
    wasted_ns: float | None = None
    """`executed` × the server's mean computing time of a request. Of streams the server's computing time beyond the client's total time, which is at most
    what was wasted: waiting and the network are in the client's."""
    held_ns: Annotated[float | None, Figure("held after", "ns", "requests", column="held_after_ns")] = None
    """The server's mean time of a request, queue included, minus the mean time after which they were given up: for so long it worked on for
    nobody. 0 if it did not. Of streams the server's total time, queue included, beyond the client's ÷ those given up."""
    unknown: str = ""
    """Why the server's part is not known; empty if it is."""


class Retries(Part):
    """Requests that `load.retry` sent again: attempts = requests sent + retries. Outcomes, errors and times are those of requests alone."""

    attempts: Annotated[
        int,
        Figure("attempts", subject="requests", recorded=KEY, column="attempts", explained="{retries:,} retries besides the requests sent"),
    ]
    """How often the requests of the window were sent."""
    retries: Annotated[int, Figure("retries", subject="requests", recorded=KEY, column="retries")]
    """Attempts that were not the first of their request."""
    amplification: Annotated[
        float | None,
        Figure("amplification", "number", "requests", column="amplification", explained="{attempts:,} attempts ÷ requests sent"),
    ] = None
    """Attempts ÷ requests sent; None if none was sent."""
    over_budget: Annotated[int, Figure("over budget", recorded=KEY)] = 0
    """Requests whose failure became final because `budget` permitted no further attempt."""
    by_cause: dict[str, int] = Field(default_factory=dict)
    """Retries by the failure that they followed, as `load.retry.on` names it; the failures that stayed are in `outcomes`."""
    attempts_series_per_s: tuple[int, ...] | None = None
    """Attempts sent in each second of the window, also of requests from before it. None for pooled repetitions."""
    retries_series_per_s: tuple[int, ...] | None = None
    """Retries sent in each second of the window. None for pooled repetitions."""


class Connections(Part):
    """Connections opened during the load point, and those of them that replaced a lost one."""

    opened: Annotated[int, Figure("opened", subject="connections", column="connections")]
    reconnects: int
    retried: int = 0
    """Requests sent again because an idle connection was closed before any byte of their answer."""
    rotated: int = 0
    """Connections closed after the requests or the time of `target.connections`."""
    connect_time_ns: Annotated[Distribution | None, Figure("connect time", "ns", "connections", column="connect")] = None
    """How long connections took to open: the name's resolution, TCP, TLS, HTTP/2's settings; None if none was opened."""


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
    """The tokens of the prompts, summed over all answers that report them."""
    output: Annotated[int, Figure("output tokens", subject="tokens", recorded="output_tokens", column="output_tokens")]
    """The tokens of the answers, reasoning included."""
    reported: Annotated[int, Figure("answers with usage", subject="tokens", recorded="tokens_reported")]
    """The answers that report their tokens."""
    several_in_event: Annotated[int, Figure(recorded=KEY)]
    """Streamed answers with more tokens than events, so that a gap between events is not the time of a token."""
    per_token_unknown: Annotated[int, Figure(recorded=KEY)] = 0
    """Streamed answers whose time per token is not known, because the tokens after their first event are not."""
    per_token_cut_off: Annotated[int, Figure(recorded=KEY)] = 0
    """Streams that began, and then timed out or were unfinished, so that they have no time per token."""

    @property
    def output_per_answer(
        self,
    ) -> Annotated[float | None, Figure("output tokens per answer", "number", "tokens", column="output_tokens_per_answer")]:
        """The mean output tokens of the answers that report them; None without any."""
        return self.output / self.reported if self.reported else None


class SequenceCounts(Part):
    """Sequences by what happened to them in the window; one that is open at either end of it is not in all of the counts."""

    started: Annotated[int, Figure("started", subject="sequences", recorded="sequences_started")]
    """Sequences whose first request was due in the window."""
    ended: Annotated[int, Figure("ended", subject="sequences", recorded="sequences_ended", column="sequences_ended")]
    """Sequences whose last request was answered."""
    failed: Annotated[int, Figure("failed", subject="sequences", recorded="sequences_failed", column="sequences_failed")]
    """Sequences that ended early because a request failed."""
