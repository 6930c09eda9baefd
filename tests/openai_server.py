"""A server of OpenAI's API that is written into a test: what it answers, and when, is the test's."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

from tests.json_server import JsonHandler, serving

MODEL = "tiny"


@dataclasses.dataclass
class Answers:
    """How the server answers; the requests that it has received."""

    events: Sequence[str | dict[str, Any]] = ("a", " b", " c", " d")
    """The deltas of a stream; a text is one of `content`."""
    first_s: float = 0.0
    """Before the first of them."""
    gap_s: float = 0.0
    """Between them."""
    tokens: int | None = None
    """The tokens of the answer, by default one for each event."""
    usage: str = "final"
    """`final`, as `include_usage` asks for it; `chunks`, in each event; or `off`."""
    has_done: bool = True
    documents: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    headers: list[dict[str, str]] = dataclasses.field(default_factory=list)
    paths: list[str] = dataclasses.field(default_factory=list)

    @property
    def usage_members(self) -> dict[str, Any]:
        output = len(self.events) if self.tokens is None else self.tokens
        return {"prompt_tokens": 7, "completion_tokens": output, "total_tokens": 7 + output}


def handler_of(answers: Answers) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def do_GET(self):
            known = self.path.endswith("/v1/models")
            self.answer(200 if known else 404, {"object": "list", "data": [{"id": MODEL, "owned_by": "tests"}]} if known else {})

        def do_POST(self):
            document = json.loads(self.body())
            answers.documents.append(document)
            answers.headers.append(dict(self.headers))
            answers.paths.append(self.path)
            if document["model"] != MODEL:
                self.answer(404, {"error": {"message": f"no model {document['model']}", "type": "NotFoundError"}})
            elif document.get("stream"):
                self.stream(document)
            elif self.path.endswith("embeddings"):
                data = [{"index": 0, "embedding": [0.5, 1.0]}]
                self.answer(200, {"model": MODEL, "data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}})
            else:
                time.sleep(answers.first_s)
                usage = {} if answers.usage == "off" else {"usage": answers.usage_members}
                self.answer(200, {"model": MODEL, "choices": [{"message": {"content": "a b"}, "finish_reason": "stop"}], **usage})

        def stream(self, document):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            of_chunk = {"usage": {**answers.usage_members, "completion_tokens": 0}} if answers.usage == "chunks" else {}
            self.event({"model": MODEL, "choices": [{"delta": {"role": "assistant", "content": ""}}], **of_chunk})
            time.sleep(answers.first_s)
            for number, delta in enumerate(answers.events):
                if number:
                    time.sleep(answers.gap_s)
                if answers.usage == "chunks":
                    reported = answers.usage_members["completion_tokens"] * (number + 1) // len(answers.events)
                    of_chunk["usage"] = {**answers.usage_members, "completion_tokens": reported}
                if isinstance(delta, dict) and "error" in delta:
                    self.event(delta)
                    continue
                choice = (
                    {"text": delta}
                    if self.path.endswith("/v1/completions")
                    else {"delta": {"content": delta} if isinstance(delta, str) else delta}
                )
                self.event({"model": MODEL, "choices": [{**choice, "finish_reason": None}], **of_chunk})
            self.event({"model": MODEL, "choices": [{"delta": {}, "finish_reason": "stop"}], **of_chunk})
            if answers.usage == "final" and document.get("stream_options", {}).get("include_usage"):
                self.event({"model": MODEL, "choices": [], "usage": answers.usage_members})
            if answers.has_done:
                self.piece(b"data: [DONE]\n\n")
            self.piece(b"")

        def event(self, document):
            self.piece(b"data: " + json.dumps(document).encode() + b"\n\n")

        def piece(self, data):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    return Handler


@contextlib.contextmanager
def openai_server(answers: Answers):
    """The URL of a server that answers so, for as long as the block."""
    with serving(handler_of(answers)) as port:
        yield f"http://127.0.0.1:{port}"
