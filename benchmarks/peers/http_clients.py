"""Further HTTP clients of a comparison: hey, autocannon and locust, each with the options that suit a closed loop of one request."""

import json
import pathlib
import re

from benchmarks.peers.clients import MAX_RUN_S, ClientError, Load, Reported, duration_us, run_measured
from perfkit.protocol import rest

_LOCUST = """
import json, pathlib
from locust import FastHttpUser, task
body, given = pathlib.Path({body!r}).read_bytes(), json.loads({headers!r})
class User(FastHttpUser):
    host = {host!r}
    @task
    def infer(self):
        self.client.post({path!r}, data=body, headers=given)
"""


def _prepared(load: Load, folder: pathlib.Path) -> tuple[dict[str, str], pathlib.Path]:
    """The headers of the request, and a file with its body."""
    headers, buffers = rest.encode_infer_request(load.request)
    body = folder / "body"
    body.write_bytes(b"".join(buffers))
    return dict(headers), body


def run_hey(program: str, load: Load, folder: pathlib.Path) -> Reported:
    """Runs hey, of the Debian package: its own count, and a median of tenths of a millisecond."""
    headers, body = _prepared(load, folder)
    given = [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
    limits = ["-z", f"{max(1, round(load.seconds))}s", "-c", str(load.concurrency)]
    usage = run_measured([program, *limits, "-m", "POST", *given, "-D", str(body), load.url], timeout_s=MAX_RUN_S + load.seconds)
    answers = dict(re.findall(r"\[(\d+)\]\s+(\d+) responses", usage.output))
    per_s, median = re.search(r"Requests/sec:\s+([\d.]+)", usage.output), re.search(r"50% in ([\d.]+) secs", usage.output)
    if set(answers) != {"200"} or per_s is None or median is None or "Error distribution" in usage.output:
        raise ClientError(f"hey printed something unexpected: {usage.output[-1000:]}")
    return Reported(int(answers["200"]), float(per_s[1]), duration_us(f"{median[1]}s"), usage)


def run_autocannon(program: str, load: Load, folder: pathlib.Path) -> Reported:
    """Runs autocannon, of npm, whose times are whole milliseconds, so that it has no median of shorter ones."""
    headers, body = _prepared(load, folder)
    given = [part for name, value in headers.items() for part in ("-H", f"{name}={value}")]
    limits = ["-d", str(max(1, round(load.seconds))), "-c", str(load.concurrency)]
    command = [program, *limits, "-m", "POST", *given, "-i", str(body), "--json", "--no-progress", load.url]
    usage = run_measured(command, timeout_s=MAX_RUN_S + load.seconds)
    found = json.loads(usage.output[usage.output.index("{") :])
    if found["non2xx"] or found["errors"]:
        raise ClientError(f"autocannon had failures: {found['non2xx']} answers and {found['errors']} errors")
    return Reported(found["2xx"], found["requests"]["average"], float("nan"), usage)


def run_locust(program: str, load: Load, folder: pathlib.Path) -> Reported:
    """Runs locust with its FastHttpUser, all users at once, whose times are rounded to milliseconds."""
    headers, body = _prepared(load, folder)
    host, _, path = load.url.removeprefix("http://").partition("/")
    script = folder / "locustfile.py"
    script.write_text(_LOCUST.format(body=str(body), headers=json.dumps(headers), host=f"http://{host}", path=f"/{path}"), encoding="utf-8")
    users, seconds = str(load.concurrency), f"{max(1, round(load.seconds))}s"
    command = [program, "-f", str(script), "--headless", "-u", users, "-r", users, "-t", seconds, "--json", "--loglevel", "ERROR"]
    usage = run_measured(command, timeout_s=MAX_RUN_S + load.seconds)
    (found,) = json.loads(usage.output[usage.output.index("[") : usage.output.rindex("]") + 1])
    if found["num_failures"]:
        raise ClientError(f"locust had {found['num_failures']} failures")
    requests, length_s = found["num_requests"], found["last_request_timestamp"] - found["start_time"]
    return Reported(requests, requests / length_s, float("nan"), usage)


FURTHER = {"hey": run_hey, "autocannon": run_autocannon, "locust": run_locust}
"""By name, each with its program as the first argument."""
