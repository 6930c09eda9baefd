"""Reads streamed chats with OpenAI's own client: `python read_streams.py URL MODEL REQUESTS TOKENS`, in the server's Python.

Prints JSON: for each chat the seconds to its first event with content and to its end, and the tokens that the server reports.
"""

import json
import sys
import time

import openai

url, model, requests, tokens = sys.argv[1:]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
rows = []
for _ in range(int(requests)):
    begin_s, first_s, reported = time.perf_counter(), None, None
    stream = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hello fox"}], max_tokens=int(tokens), temperature=0,
        stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    for event in stream:
        if first_s is None and event.choices and event.choices[0].delta.content:
            first_s = time.perf_counter() - begin_s
        if event.usage is not None:
            reported = event.usage.completion_tokens
    rows.append((first_s, time.perf_counter() - begin_s, reported))
print(json.dumps(rows))
