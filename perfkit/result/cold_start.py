"""The starts of the model or the server in a load point with cold starts."""

from perfkit.result.part import Part


class ColdStart(Part):
    """One start of the model or the server; times count from the call of load, or from the start of the server's process."""

    repetition: int
    unload_ns: int | None
    """From the call of unload until the model was gone; None for a restart, as is the next."""
    load_ns: int | None
    """Until load was answered."""
    ready_ns: int
    """Until the model was ready."""
    first_answer_ns: int | None
    """The service time of the first request that was answered; None without an answer."""
    first_answer_after_ns: int | None
    """Until that answer."""
    failed_before_answer: int
    """Requests that failed before it."""
    steady_after_requests: int | None
    """The number of requests until the times were those of a warm model; None if they were not within the first half."""
    steady_after_ns: int | None
    """Until the first request after those was sent."""
    warm_p50_ns: int | None
    """The median of the second half of the requests."""
    times_ns: tuple[int | None, ...]
    """The service time of each request in turn; None for those that failed."""


class Spread(Part):
    """The median and the range of a figure over the starts that have it."""

    median: float
    min: float
    max: float


class ColdStarts(Part):
    """The starts of a load point."""

    starts: tuple[ColdStart, ...]
    figures: dict[str, Spread]
    """By the names of the figures of a start."""
