"""`python -m server_stub.tracing.sending OPTIONS`: sends the batches of traces that the server writes to its stdin, by OTLP over HTTP.

A process of its own, because OpenTelemetry takes about 0.3 ms of Python for a request, which would delay others.
"""

import json
import logging
import os
import pickle
import sys
from typing import IO, Any

from server_stub.tracing.spans import SpanMaker, unix_offset_ns

_TIMEOUT_S = 5.0  # for one batch with all attempts
_LOWEST_PRIORITY = 19


def main(options: dict[str, Any], batches: IO[bytes], answers: IO[bytes]) -> None:
    """Send each batch, a pickled list of RequestTrace, and answer `sent` or `lost`, until there are no more."""
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    logging.disable()  # the server says once that traces are lost
    maker, session = SpanMaker(options["resource"]), requests.Session()
    session.trust_env = False  # the collector is reached directly, and gets no credentials of a .netrc
    exporter = OTLPSpanExporter(options["url"], timeout=_TIMEOUT_S, session=session)
    while True:
        try:
            traces = pickle.load(batches)  # noqa: S301 - the server wrote it
        except EOFError:
            return
        is_sent = exporter.export(maker.make(traces, unix_offset_ns())) is SpanExportResult.SUCCESS
        answers.write(b"sent\n" if is_sent else b"lost\n")
        answers.flush()


if __name__ == "__main__":
    os.nice(_LOWEST_PRIORITY)
    main(json.loads(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
