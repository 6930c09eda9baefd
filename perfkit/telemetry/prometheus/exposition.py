"""The live run for Prometheus: text format 0.0.4 over HTTP, from the process that samples.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import http.server
import re
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from perfkit.telemetry.messages import Metric
from perfkit.telemetry.series import Series

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "perfkit_"
_NO_NAME, _NO_LABEL = re.compile(r"[^A-Za-z0-9_:]"), re.compile(r"[^A-Za-z0-9_]")


class PublishedRun:
    """What is known of the run now: what it published itself, and the newest sample of each series."""

    def __init__(self, latest: Callable[[], Iterable[Series]]) -> None:
        self._latest = latest
        self._published: dict[str, Sequence[Metric]] = {}

    def publish(self, key: str, metrics: Sequence[Metric]) -> None:
        """Puts figures in the place of those of the same key; those of one name are of one kind."""
        self._published = {**self._published, key: metrics}

    def text(self) -> str:
        """The whole page."""
        metrics = [metric for some in self._published.values() for metric in some]
        return render([*metrics, *(_of_series(series) for series in self._latest())])


class Exposition:
    """Serves `/metrics` until it is closed; raises OSError where it cannot listen."""

    def __init__(self, listen: tuple[str, int], run: PublishedRun) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_GET(self) -> None:
                known = self.path.partition("?")[0] in ("/metrics", "/")
                body = (run.text() if known else "perfkit's figures are at /metrics\n").encode()
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", CONTENT_TYPE if known else "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def server_bind(self) -> None:
                """Without asking the network for the machine's name, as the library does, which may take seconds."""
                socketserver.TCPServer.server_bind(self)

            def handle_error(self, request: object, client_address: object) -> None:
                """A reader that leaves is no matter."""

        Server.address_family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self._server = Server(listen, Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def render(metrics: Iterable[Metric]) -> str:
    """Metrics as text, those of one name together under one head, as the format asks for."""
    families: dict[str, list[Metric]] = {}
    for metric in metrics:
        families.setdefault(_PREFIX + _NO_NAME.sub("_", metric.name), []).append(metric)
    lines: list[str] = []
    for name, some in families.items():
        lines += [f"# HELP {name} {_escaped(some[0].text)}", f"# TYPE {name} {some[0].kind}"]
        values = {_labels(metric.labels): metric.value for metric in some}  # one line a set of labels, or the page is not valid
        lines += [f"{name}{labels} {_number(value)}" for labels, value in values.items()]
    return "".join(f"{line}\n" for line in lines)


def _of_series(series: Series) -> Metric:
    unit = f" ({series.unit})" if series.unit else ""
    return Metric(series.name, f"The newest sample of {series.name}{unit}", "gauge", series.labels, series.values[-1])


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{_NO_LABEL.sub("_", key)}="{_quoted(value)}"' for key, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    text = repr(float(value))
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text, text)
