"""Generated command lines of perf_analyzer: valid and invalid values, prefixes, attached values, repeated options, ignored words."""

import random
from collections.abc import Mapping, Sequence

FILES = {
    "data.json": '{"data": [{"INPUT": [1]}, {"INPUT": [2]}]}',
    "schedule.json": '{"data": [{"INPUT": [1], "timestamp": [5]}, {"INPUT": [1], "timestamp": [9]}, {"INPUT": [1], "timestamp": [12]}]}',
    "empty.json": '{"data": []}',
    "validated.json": '{"data": [{"INPUT": [1]}], "validation_data": [{"OUTPUT": [1]}]}',
    "broken.json": '{"data": [',
    "not_a_number.json": '{"data": [{"INPUT": [NaN]}]}',
    "folder/INPUT": "",
    "intervals.txt": "1000\n2000\n",
    "ca.pem": "",
    "present.json": "",
}
"""The files that the lines name."""

_INTEGERS = ("1", "2", "5", "10", "100", "1000.0", "+7", " 8", "3x", "007")
_BAD_INTEGERS = ("0", "-1", "", "abc", "99999999999", "99999999999999999999999", ".5", "1e3", "-0", "0x10")
_PATHS = ("data.json", "folder", "schedule.json", "empty.json", "validated.json", "broken.json", "not_a_number.json")
_BAD_PATHS = ("missing.json", "", "/dev/null")
_RANGES = ("1", "4", "1:4", "1:8:2", "4:4", "8:2", "2:10:3", "3:0", "0", "1:0:2")
_BAD_RANGES = ("a", "1:", ":4", "1:2:3:4", "::", "-1", "1:-1", "1::2", "1.5", "99999999999999999999", "1:x:2")
_RATES = (*_RANGES, "0.5", "1.5:2.5:0.5", "1e3", "100:1000:100", "5:0.0", "inf", "0x10")
_BAD_RATES = (*_BAD_RANGES, "nan", "1e400", "1e-400", "-0.5", "infinite")
_FILE_OR_NOT = (("ca.pem",), ("missing.pem", "folder", ""))

WITHOUT_VALUE = (
    "-v", "-d", "-a", "-z", "--streaming", "--async", "--sync", "--binary-search", "--ssl-grpc-use-ssl", "--verbose-csv",
    "--collect-metrics", "--serial-sequences", "--version", "--fixed-schedule",
)  # fmt: skip
"""Options without a value; `--enable-mpi` needs a library of Open MPI, and is left out."""

WITH_VALUE: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "-m": (("simple", "a b", "--shape", "-v"), ("",)),
    "-x": (("1", "latest"), ("",)),
    "-u": (("127.0.0.1:9", "http://127.0.0.1:9"), ("127.0.0.1:99999", "no port")),
    "-i": (("http", "grpc", "gRPC", "HTTP", "Grpc"), ("tcp", "", "http ", "https")),
    "-b": (_INTEGERS, _BAD_INTEGERS),
    "-t": (_INTEGERS, _BAD_INTEGERS),
    "-c": (_INTEGERS, _BAD_INTEGERS),
    "-p": (_INTEGERS, _BAD_INTEGERS),
    "-l": (_INTEGERS, _BAD_INTEGERS),
    "-r": (_INTEGERS, _BAD_INTEGERS),
    "-s": (("10", "999", "0", "1.5", "50%", "inf"), ("-1", "nan", "x", "", "1e39", "1e-50", "-0.0")),
    "-H": (("a:b", "a:", "a:b:c", "a: b"), ("a", "")),
    "-f": (("perf.csv", "folder"), ("",)),
    "--measurement-interval": (_INTEGERS, _BAD_INTEGERS),
    "--latency-threshold": (_INTEGERS, _BAD_INTEGERS),
    "--max-trials": (_INTEGERS, _BAD_INTEGERS),
    "--stability-percentage": (("10", "999", "0"), ("-1", "nan", "x", "", "1e39")),
    "--max-threads": (_INTEGERS, _BAD_INTEGERS),
    "--sequence-length": (_INTEGERS, _BAD_INTEGERS),
    "--sequence-length-variation": (("0", "20", "12.5", "1000"), ("-1", "", "x", "nan", "1e400")),
    "--sequence-id-range": (("1", "5:9", "0:4", "5:5", "0", "3 :4"), ("9:5", "-1", "1:-2", "1:2:3", "", "1:", "a", "9999999999")),
    "--num-of-sequences": (_INTEGERS, _BAD_INTEGERS),
    "--percentile": (("50", "95", "99", "-1", "1"), ("0", "100", "abc", "4294967297", "4294967295", "", "2147483648")),
    "--data-directory": (_PATHS, _BAD_PATHS),
    "--input-data": ((*_PATHS, "zero", "random"), (*_BAD_PATHS, "Zero", "zeros")),
    "--shape": (
        ("a:3", "a:3,4", "a:b:3", ":3", "a: 3", "a:3x,4"),
        ("a", "a:", "a:0", "a:3,-1", "a:3,", "", "a:x", "a:99999999999999999999"),
    ),
    "--string-length": (_INTEGERS, _BAD_INTEGERS),
    "--string-data": (("hello", "a b", "-v"), ("",)),
    "--concurrency-range": (_RANGES, _BAD_RANGES),
    "--request-rate-range": (_RATES, _BAD_RATES),
    "--request-intervals": (("intervals.txt",), ("missing.txt", "folder", "", "/dev/null")),
    "--periodic-concurrency-range": (("1:3", "1:7:2", "0:4:2", "4:4"), (*_BAD_RANGES, "4", "5:1", "1:4:2", "1:3:0")),
    "--session-concurrency": (_INTEGERS, _BAD_INTEGERS),
    "--request-period": (_INTEGERS, _BAD_INTEGERS),
    "--request-distribution": (("poisson", "constant"), ("Poisson", "", "uniform")),
    "--shared-memory": (("none", "system", "cuda"), ("None", "", "shm")),
    "--output-shared-memory-size": (("0", "1024", "5x"), _BAD_INTEGERS[1:]),
    "--service-kind": (("triton",), ("tfserving", "torchserve", "triton_c_api", "openai", "dynamic_grpc", "Triton", "")),
    "--endpoint": (("v1/chat/completions",), ("",)),
    "--model-repository": (("/nothing",), ("",)),
    "--triton-server-directory": (("/nothing",), ("",)),
    "--model-signature-name": (("serving_default",), ("",)),
    "--grpc-method": (("a.b/c", "b/c"), ("a", "a/b/c", "")),
    "--grpc-compression-algorithm": (("none", "gzip", "deflate"), ("GZIP", "", "br")),
    "--measurement-mode": (("time_windows", "count_windows"), ("windows", "")),
    "--measurement-request-count": (_INTEGERS, _BAD_INTEGERS),
    "--request-count": (_INTEGERS, _BAD_INTEGERS),
    "--warmup-request-count": (_INTEGERS, _BAD_INTEGERS),
    "--request-parameter": (("a:1:int", "a:x:string", "a:true:bool", "a:1:INT", "::"), ("a", "a:1", "a:1:int:2", "")),
    "--ssl-grpc-root-certifications-file": _FILE_OR_NOT,
    "--ssl-grpc-private-key-file": _FILE_OR_NOT,
    "--ssl-grpc-certificate-chain-file": _FILE_OR_NOT,
    "--ssl-https-verify-peer": (("0", "1", "01", "1x", "abc"), ("2", "-1", "4294967296")),
    "--ssl-https-verify-host": (("0", "1", "2", ""), ("3", "-1")),
    "--ssl-https-ca-certificates-file": _FILE_OR_NOT,
    "--ssl-https-client-certificate-file": _FILE_OR_NOT,
    "--ssl-https-client-certificate-type": (("PEM",), ("pem", "", "P12")),
    "--ssl-https-private-key-file": _FILE_OR_NOT,
    "--ssl-https-private-key-type": (("PEM",), ("pem", "", "P12")),
    "--trace-level": (("OFF", "TIMESTAMPS", "TENSORS"), ("off", "", "MAX")),
    "--trace-rate": (("1000", "1"), ("",)),
    "--trace-count": (("-1", "0", "5"), ("-2", "x", "", "99999999999")),
    "--log-frequency": (("0", "5"), ("-1", "x", "", "99999999999")),
    "--metrics-url": (("localhost:8002/metrics",), ("",)),
    "--metrics-interval": (_INTEGERS, _BAD_INTEGERS),
    "--bls-composing-models": (("a", "a:3,b", "a, b"), ("", ",")),
    "--input-tensor-format": (("binary", "json", "JSON"), ("", "text")),
    "--output-tensor-format": (("binary", "json", "Binary"), ("", "text")),
    "--profile-export-file": (("new.json", "missing/new.json", ""), ("present.json", "folder")),
}
"""Options with values that perf_analyzer takes by themselves, and with others, most of which it refuses."""

_UNKNOWN = (
    "-h",
    "--help",
    "-?",
    "-k",
    "--proto=http",
    "--url=x",
    "--s",
    "--se",
    "--ssl-grpc",
    "--",
    "-",
    "localhost:8000",
    "--=",
    "---v",
    "-:",
)
_PARTNERS: Mapping[str, tuple[str, ...]] = {
    "--streaming": ("-i", "grpc"),
    "--grpc-compression-algorithm": ("-i", "grpc"),
    "--request-parameter": ("-i", "grpc"),
    "--metrics-url": ("--collect-metrics",),
    "--metrics-interval": ("--collect-metrics",),
    "--fixed-schedule": ("--input-data", "schedule.json"),
    "--binary-search": ("-l", "50", "--concurrency-range", "1:8"),
    "--periodic-concurrency-range": ("--streaming", "-igrpc", "--profile-export-file", "new.json"),
}
"""What an option needs beside it to be accepted."""
_MOST_OPTIONS = 7
_MODES = ("--concurrency-range", "--request-rate-range", "--request-intervals", "--fixed-schedule", "--periodic-concurrency-range")


def generate_lines(seed: int, count: int) -> list[list[str]]:
    """So many different command lines, without the program's name and the URL; the same seed gives the same ones."""
    choose = random.Random(seed)
    lines: dict[tuple[str, ...], None] = {}
    while len(lines) < count:
        lines[tuple(_line(choose))] = None
    return [list(line) for line in lines]


def _line(choose: random.Random) -> list[str]:
    badness = choose.choice((0.0, 0.0, 0.05, 0.3))
    parts = [] if choose.random() < 0.02 else [_given("-m", "simple", choose)]
    names = [*WITHOUT_VALUE, *WITH_VALUE]
    for _ in range(choose.randint(0, _MOST_OPTIONS)):
        name = choose.choice(_MODES if choose.random() < 0.15 else names)
        if name == "--version" and choose.random() < 0.8:
            continue
        parts.append(_option(name, choose, badness))
        if name in _PARTNERS and choose.random() < 0.8:
            parts.append([*_PARTNERS[name]])
    if parts and choose.random() < 0.1:
        parts.append(choose.choice(parts))
    if choose.random() < 0.1:
        parts.append([choose.choice(_UNKNOWN)])
    choose.shuffle(parts)
    words = [word for part in parts for word in part]
    if words and choose.random() < 0.03:
        words.pop()  # the last option may now lack its value
    return words


def _option(name: str, choose: random.Random, badness: float) -> list[str]:
    if name in WITHOUT_VALUE:
        if choose.random() < badness / 3:
            return [f"{name}=true"]
        return [_shortened(name, choose)] + (["true"] if choose.random() < 0.05 else [])
    good, bad = WITH_VALUE[name]
    return _given(name, choose.choice(bad if choose.random() < badness else good), choose)


def _given(name: str, value: str, choose: random.Random) -> list[str]:
    """An option with its value, attached or not, and after a bundle of flags."""
    if name.startswith("--"):
        flag = _shortened(name, choose)
        return [f"{flag}={value}"] if choose.random() < 0.5 else [flag, value]
    flag = f"-{choose.choice(('v', 'a', 'va', 'vv'))}{name[1]}" if choose.random() < 0.05 else name
    return [flag + value] if value and choose.random() < 0.4 else [flag, value]


def _shortened(name: str, choose: random.Random) -> str:
    """A prefix of a long option, now and then; it may be ambiguous."""
    if not name.startswith("--") or choose.random() < 0.75:
        return name
    return name[: choose.randint(max(4, len(name) - 12), len(name))]
