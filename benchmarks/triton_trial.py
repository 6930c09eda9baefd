"""Measures a real Triton whose models fail, queue, reload and restrict, over HTTP and gRPC, and checks what perfkit says of it.

    python -m benchmarks.triton_trial [--peers FOLDER] [--before CHECKOUT] [--out reports/triton-trial.md]

Triton serves the models of `benchmarks/peers/triton_odd_models`. `--before` runs the cases with another checkout of perfkit as well,
which needs its own `.venv`. The exit code is 1 if a case fails with this checkout. Whether a point is valid does not matter here.
"""

import contextlib
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks.peers.install import peers_folder
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import ODD_MODELS, Triton, running_triton
from benchmarks.processes import PerfkitRun, run_perfkit
from benchmarks.report import describe_machine, option_parser, table_head, table_row, write_report, yes_no

_SHOWN_CHARACTERS = 160
_RESTRICTED = ("--http-restricted-api=metadata,model-config:key=secret", "--grpc-restricted-protocol=metadata,model-config:key=secret")
_DECLARED = {"inputs": {"x": {"generate": "random", "datatype": "FP32", "shape": [1, 4]}}}


class Case(NamedTuple):
    """A run, and what it must show; `find` gives what the result shows, as text, and whether that is right."""

    name: str
    model: str
    find: Callable[[PerfkitRun], tuple[str, bool]]
    sections: Mapping[str, Any] = {}
    is_restricted: bool = False
    reloads: bool = False


def _codes(run: PerfkitRun) -> set[str]:
    return {warning["code"] for warning in run.point["warnings"]}


def _trial_request(run: PerfkitRun) -> tuple[str, bool]:
    if run.result is None:
        return f"exit {run.exit_code}: {run.stderr.strip()}", False
    return f"exit {run.exit_code}, measured", "probe_retried" in _codes(run)


def _counts(run: PerfkitRun) -> tuple[str, bool]:
    found = _codes(run) & {"server_counts_errors", "server_counts_differ"}
    return ", ".join(sorted(found)), found == {"server_counts_errors"}


def _messages(run: PerfkitRun) -> tuple[str, bool]:
    failures = [(one["status"], one["message"], one["cause"], one["count"]) for one in run.point.get("failures", [])]
    shown = "; ".join(f"{count:,} × {status} {message} ({cause})" for status, message, cause, count in failures)
    return shown or str(run.point.get("errors")), len(failures) == 2 and sum(one[3] for one in failures) == run.point["requests"][
        "rejected"
    ]


def _causes(run: PerfkitRun) -> tuple[str, bool]:
    shown, is_complete = _messages(run)
    return shown, is_complete and {one["cause"] for one in run.point["failures"]} == {"queue_full", "queue_timeout"}


def _measured(run: PerfkitRun) -> tuple[str, bool]:
    if run.result is None:
        return f"exit {run.exit_code}: {run.stderr.strip()}", False
    requests = run.point["requests"]
    return f"{requests['ok']:,} ok of {requests['sent']:,}", 0 < requests["ok"] == requests["sent"]


def _composing(run: PerfkitRun) -> tuple[str, bool]:
    models = (run.point["server"] or {}).get("composing_models", [])
    infer_ms = {model["name"]: model["compute_infer_ns"] / 1e6 for model in models}
    is_right = set(infer_ms) == {"resize", "classify"} and infer_ms["resize"] < infer_ms["classify"]
    return ", ".join(f"{name} {ms:.1f} ms" for name, ms in infer_ms.items()) or "none", is_right


def _restricted(run: PerfkitRun) -> tuple[str, bool]:
    return (
        f"exit {run.exit_code}: {run.stderr.strip()}",
        run.exit_code == 6 and "restricted" in run.stderr and "target.headers" in run.stderr,
    )


def _reloaded(run: PerfkitRun) -> tuple[str, bool]:
    server, point = run.point["server"], run.point
    shown = "null" if server is None else f"{server['requests']:,} requests, of {server['client_requests']:,} that perfkit had answered"
    return f"server: {shown}", server is None and "server_counters_reset" in _codes(run) and point["requests"]["rejected"] > 0


_OPEN = {"load": {"open": {"rate": 200}}, "measure": {"warmup": "0s", "duration": "6s", "repetitions": 1}}
_WITHOUT_BIAS = {"inputs": {"bias": {"generate": "omit"}}}
_HAD_NO_BIAS = {"share": 1.0, "outputs": {"had_bias": {"value": [[0]]}}}
CASES = (
    Case("one failed trial request", "flaky", _trial_request),
    Case("errors counted as successes", "failing", _counts),
    Case("distinct messages", "failing", _messages),
    Case("a full queue and a time-out in it", "bounded_queue", _causes, {"load": {"closed": {"concurrency": 32}}}),
    Case("an optional input left out", "optional_bias", _measured, {"workload": _WITHOUT_BIAS, "check": _HAD_NO_BIAS}),
    Case("an ensemble's models", "pipeline", _composing),
    Case("restricted metadata", "resize", _restricted, is_restricted=True),
    Case("restricted metadata, declared inputs", "resize", _measured, {"workload": _DECLARED}, is_restricted=True),
    Case("a model reloaded in mid-run", "resize", _reloaded, _OPEN, reloads=True),
)


def scenario(case: Case, url: str) -> dict[str, Any]:
    """The scenario of a case."""
    return {
        "name": "trial",
        "target": {"url": url, "model": case.model},
        "load": {"closed": {"concurrency": 4}},
        "measure": {"warmup": "0s", "duration": "2s", "repetitions": 1},
        **case.sections,
    }


def run_case(case: Case, triton: Triton, protocol: str, checkout: pathlib.Path | None) -> tuple[str, bool]:
    """What the run shows, shortened, and whether it is right."""
    if case.reloads:
        _unload_and_load(triton, case.model, 0)  # the counters start at 0, and pass that again after the reload
    time.sleep(0.6)  # after half a second without a request, `flaky` fails the next one

    def during(process: "subprocess.Popen[bytes]") -> None:
        if case.reloads:
            _reload(triton, case.model, process)

    run = run_perfkit(scenario(case, triton.url(protocol)), during=during, checkout=checkout)
    try:
        shown, is_right = case.find(run)
    except (RuntimeError, KeyError) as error:
        shown, is_right = str(error), False
    shown = re.sub(r"\S*/scenario\.yaml", "scenario.yaml", " ".join(shown.split())).replace("|", "\\|")
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "…", is_right


def _reload(triton: Triton, model: str, run: "subprocess.Popen[bytes]") -> None:
    """Unloads the model after some 100 requests of a load, and loads it again after more than a second."""
    before = _executions(triton, model)
    while run.poll() is None and _executions(triton, model) < before + 100:
        time.sleep(0.1)
    _unload_and_load(triton, model, 1.2)


def _unload_and_load(triton: Triton, model: str, pause_s: float) -> None:
    triton.request(f"v2/repository/models/{model}/unload", {})
    time.sleep(pause_s)
    triton.request(f"v2/repository/models/{model}/load", {})


def _executions(triton: Triton, model: str) -> int:
    with contextlib.suppress(urllib.error.HTTPError):
        statistics: Any = triton.request(f"v2/models/{model}/stats")["model_stats"]
        return int(statistics[0]["inference_count"])
    return 0


def run_all(folder: pathlib.Path, before: pathlib.Path | None) -> tuple[list[str], int]:
    """The report's lines, and the number of cases that fail now."""
    rows, failed, version = [], 0, ""
    for is_restricted in (False, True):
        options = _RESTRICTED if is_restricted else ("--model-control-mode=explicit", "--load-model=*")
        with running_triton(folder, models=ODD_MODELS, options=options) as triton:
            version = version or triton.version  # restricted metadata hide it
            for case in (case for case in CASES if case.is_restricted is is_restricted):
                for protocol in ("http", "grpc"):
                    earlier = run_case(case, triton, protocol, before)[0] if before else "–"
                    shown, is_right = run_case(case, triton, protocol, None)
                    failed += not is_right
                    rows.append(table_row(case.name, protocol, earlier, shown, yes_no(is_right)))
                    print(rows[-1], flush=True)
    head = [f"# Trial of a Triton {version} with odd models", "", describe_machine(), ""]
    return [*head, *table_head("case", "protocol", "before", "now", "right"), *rows], failed


def main() -> int:
    """Prints the cases; the exit code is 1 if one of them fails with this checkout."""
    parser = option_parser(__doc__)
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    parser.add_argument(
        "--before", type=pathlib.Path, metavar="CHECKOUT", help="another checkout of perfkit, to run the cases with as well"
    )
    options = parser.parse_args()
    try:
        lines, failed = run_all(peers_folder(options.peers), options.before)
    except PeerError as error:
        print(error, file=sys.stderr)
        return 1
    write_report(options.out, lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
