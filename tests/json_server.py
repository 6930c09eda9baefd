"""A server written into a test: what it answers is the test's, the rest of HTTP is the standard library's."""

import contextlib
import http.server
import itertools
import json
import ssl
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any


class JsonHandler(http.server.BaseHTTPRequestHandler):
    """Answers with documents, on connections that stay, and writes no log."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is written after the headers, and would wait 40 ms for their acknowledgement

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, status, document, reason=None):
        self.answer_bytes(status, json.dumps(document).encode(), reason=reason)

    def answer_bytes(self, status, body, declared_bytes=None, reason=None):
        self.send_response(status, reason)
        self.send_header("Content-Length", str(declared_bytes or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def v2_handler(on_inference: Callable[[int], None]) -> type["JsonHandler"]:
    """Serves the model `m` over v2, one FP32 value to one; `on_inference(number)`, counted from 1, is called before each answer."""
    numbers, tensor = itertools.count(1), dict[str, Any](datatype="FP32", shape=[1])

    class Handler(JsonHandler):
        def do_GET(self):
            inputs, outputs = [{"name": "i", **tensor}], [{"name": "o", **tensor}]
            metadata = {"name": "m", "versions": ["1"], "platform": "x", "inputs": inputs, "outputs": outputs}
            self.answer(404 if self.path.endswith("config") else 200, metadata)

        def do_POST(self):
            self.body()
            on_inference(next(numbers))
            self.answer(200, {"model_name": "m", "model_version": "1", "outputs": [{"name": "o", **tensor, "data": [1.0]}]})

    return Handler


class JsonServer(http.server.ThreadingHTTPServer):
    """A thread for each connection."""

    request_queue_size = 1000  # by default 5: of more that connect at once, the kernel lets the others wait a second for a second try

    def handle_error(self, *_):
        """A client may leave in the middle; whatever else goes wrong is shown."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | ssl.SSLError):
            traceback.print_exception(error)


@contextlib.contextmanager
def serving(handler, tls=None):
    """The port of a server with that handler, for as long as the block."""
    server = JsonServer(("127.0.0.1", 0), handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # the seconds that its end may wait; by default half of one
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
