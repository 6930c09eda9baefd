"""Cases of the hostile trial in families: every file that perfkit reads, every number that it is given, every environment without comforts."""

import json
import pathlib
import random
from collections.abc import Iterator, Mapping

from benchmarks.hostile_cases import RUN, Case, http_target, scenario

_FILES: Mapping[str, str | bytes | pathlib.Path | None] = {
    "a device without an end": pathlib.Path("/dev/zero"),
    "a folder": pathlib.Path("/usr"),
    "a broken link": pathlib.Path("/nowhere/at-all"),
    "an empty file": "",
    "random bytes": random.Random(1).randbytes(2**16),
    "one line of 40 MB": "x" * 40_000_000,
    "lists 100,000 deep": "[" * 100_000,
    "numbers of 5,000 digits": f'{{"schema_version": {"9" * 5000}, "target": {"9" * 5000}}}\n',
    "escape sequences and NULs": '{"name": "\x1b[2J\x1b]0;x\x07\\u0000", "\x00": 1}\n',
    "other UTF-16": '{"name": "x"}'.encode("utf-16"),
    "nothing at all": None,
}
_READERS: Mapping[str, tuple[str, ...]] = {
    "f.yaml": ("validate", "f.yaml"),
    "result.json": ("explain", "result.json"),
    "compared.json": ("compare", "compared.json", "compared.json"),
    "export.json": ("report", "export.json"),
    "export.csv": ("report", "export.csv"),
    "planned.json": ("plan", "planned.json", "--slo", "p99<1s", "--demand", "10/s"),
    "profile.csv": ("plan", "s.yaml", "--slo", "p99<1s", "--profile", "profile.csv"),
    "baseline.json": ("gate", "--baseline", "baseline.json", "--candidate", "baseline.json"),
    "based.json": ("baseline", "based.json"),
    "accepted.yaml": ("gate", "s.yaml", "--baseline", "http://127.0.0.1:9", "--candidate", "http://127.0.0.1:9", "--accepted", "accepted.yaml"),
    "added.json": ("history", "add", "added.json"),
    "h.sqlite": ("history", "list", "--file", "h.sqlite"),
    "left.partial": ("recover", "left.partial"),
    "t.jsonl": ("validate", "s.yaml", "--set", "load={replay: {trace: t.jsonl}}"),
    "t.csv": ("validate", "s.yaml", "--set", "load={replay: {trace: t.csv}}"),
    "t.parquet": ("validate", "s.yaml", "--set", "load={replay: {trace: t.parquet}}"),
    "x.npy": ("run", "s.yaml", "--set", "workload={inputs: {x: {file: x.npy}}}"),
    "data.json": ("run", "s.yaml", "--set", "workload={data: data.json}"),
    "token": ("run", "s.yaml", "--set", "fleet={listen: '127.0.0.1:0', workers: 1, token_file: token, join_within: 100ms}"),
    "cert.pem": ("run", "s.yaml", "--set", "target.tls={ca: cert.pem}"),
    "gaps": ("perf-analyzer", "-m", "m", "-u", "127.0.0.1:9", "--request-intervals", "gaps"),
    "input.json": ("perf-analyzer", "-m", "m", "-u", "127.0.0.1:9", "--input-data", "input.json"),
}  # fmt: skip
_SERVED = {"x.npy", "data.json", "token", "cert.pem"}
"""Files that are read once the target is known."""
_NUMBERS: Mapping[str, str] = {
    "5,000 digits": "9" * 5000,
    "Arabic digits": "٣",
    "digits with _": "1_000",
    "1e400": "1e400",
    "nan": "nan",
    "a minus": "-1",
    "0x10": "0x10",
    "full-width digits": "１２",
}
_URL = ("run", "http://127.0.0.1:9", "-m", "m")
_TAKERS: Mapping[str, tuple[str, ...]] = {
    "-c": (*_URL, "--print-scenario", "-c", "{number}"),
    "--rate": (*_URL, "--print-scenario", "--rate", "{number}"),
    "--duration": (*_URL, "--print-scenario", "--duration", "{number}s"),
    "--slo": (*_URL, "--print-scenario", "--slo", "p99={number}ms"),
    "--batch-size": (*_URL, "--print-scenario", "--batch-size", "{number}"),
    "--shape": (*_URL, "--print-scenario", "--shape", "x={number}"),
    "--prometheus": (*_URL, "--prometheus", "127.0.0.1:{number}"),
    "a URL's port": ("run", "http://127.0.0.1:{number}", "-m", "m"),
    "--set of a count": ("validate", "s.yaml", "--set", "measure.requests={number}"),
    "--set of a duration": ("validate", "s.yaml", "--set", "measure.warmup={number}s"),
    "--set of a share": ("validate", "s.yaml", "--set", "measure.abort_error_rate={number}%"),
    "gate --pairs": ("gate", "s.yaml", "--baseline", "http://127.0.0.1:9", "--candidate", "http://127.0.0.1:9", "--pairs", "{number}"),
    "plan --demand": ("plan", "s.yaml", "--slo", "p99<1s", "--demand", "{number}/s"),
    "serve --http-port": ("serve", "--http-port", "{number}", "--grpc-port=0"),
    "worker --join": ("worker", "--join", "tcp://127.0.0.1:{number}", "--join-within", "1ms"),
    "perf-analyzer -b": ("perf-analyzer", "-m", "m", "-b", "{number}"),
}  # fmt: skip
_OWN_RULES = {"--set of a count", "--shape", "perf-analyzer -b"}
"""YAML 1.1, in which 0x10 and 1_000 are whole numbers; perf_analyzer's exit code is 99."""
_LENGTHS = ("9" * 5000, "٣", "+5", "-1", "0x5", "1_0", "5, 5", "", "1e2", " ")
_ENVIRONMENTS: Mapping[str, tuple[Mapping[str, str | None], str]] = {
    "no HOME": ({"HOME": None}, ""),
    "a HOME that is not there": ({"HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere"}, ""),
    "a cache folder that cannot be written": ({"PERFKIT_CACHE_DIR": "/proc/nothing"}, ""),
    "a TMPDIR that is not there": ({"TMPDIR": "/nowhere"}, ""),
    "no variables at all": ({}, 'exec env -i PATH="$PATH" PYTHONPATH="$PYTHONPATH" "$@"'),
    "an ASCII locale": ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ""),
    "a locale that is not there": ({"LC_ALL": "xx_XX.UTF-8"}, ""),
    "COLUMNS without a number": ({"COLUMNS": "wide"}, ""),
    "COLUMNS of 5,000 digits": ({"COLUMNS": "9" * 5000}, ""),
    "a dumb terminal": ({"TERM": "dumb"}, ""),
    "a time zone that is not there": ({"TZ": "Nowhere/At_all"}, ""),
    "warnings as errors": ({"PYTHONWARNINGS": "error"}, ""),
    "development mode": ({"PYTHONDEVMODE": "1"}, ""),
    "optimised bytecode": ({"PYTHONOPTIMIZE": "2"}, ""),
    "64 open files": ({}, 'ulimit -n 64; exec "$@"'),
    "a stack of 256 KiB": ({}, 'ulimit -s 256; exec "$@"'),
    "no core files and the lowest priority": ({}, 'ulimit -c 0; exec nice -n 19 "$@"'),
    "one CPU": ({}, 'exec taskset -c 0 "$@"'),
    "stdin closed": ({}, 'exec "$@" <&-'),
    "stdout closed": ({}, 'exec "$@" >&-'),
    "a proxy that is not there": ({"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "no_proxy": None}, ""),
    "ignored SIGINT": ({}, 'trap "" INT; exec "$@"'),
}


def family_cases() -> Iterator[Case]:
    """All of them."""
    for file, words in _READERS.items():
        for kind, content in _FILES.items():
            files = {**scenario(), **({} if content is None else {file: content})}
            server = http_target() if file in _SERVED else None
            yield Case(f"{file} is {kind}", words, None, "", files, server, peak_mib=400)
    for taker, words in _TAKERS.items():
        for kind, number in _NUMBERS.items():
            code = None if taker in _OWN_RULES else 2
            yield Case(f"{taker}: {kind}", tuple(word.replace("{number}", number) for word in words), code, "", scenario())
    for name in ("Content-Length", "Inference-Header-Content-Length", "Retry-After", "Keep-Alive"):
        for length in _LENGTHS:
            body = json.dumps({"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [0.0]}]}).encode()
            own = "" if name == "Content-Length" else f"Content-Length: {len(body)}\r\n"
            head = f"HTTP/1.1 200 OK\r\n{name}: {length}\r\n{own}Connection: close\r\n\r\n".encode()
            yield Case(
                f"an answer's {name}: {length[:12] or 'empty'}",
                RUN,
                None,
                "",
                scenario(target={"timeout": "2s"}),
                http_target(flood=(head + body, b"")),
            )
    for name, (environ, script) in _ENVIRONMENTS.items():
        yield Case(name, RUN, 0, "", scenario(target={"timeout": "2s"}), http_target(), environ=environ, script=script)
