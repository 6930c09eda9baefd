"""Command lines of perf_analyzer's own documentation that concern v2, and the scenario that each stands for.

The documentation is that of triton-inference-server/perf_analyzer: README.md and docs/*.md; docs/cli.md describes options without whole lines,
which get the model `m` here. The documentation's older form is in triton-inference-server/client, src/c++/perf_analyzer/docs.
"""

from typing import Any

FILES = {
    "my_intervals.txt": "100000\n200000\n500000\n",
    "input_data.json": '{"data": [{"INPUT0": [1], "timestamp": [1000]}, {"INPUT0": [1], "timestamp": [2000]}]}',
    "json_file1.json": '{"data": [{"INPUT": ["1"]}]}',
    "json_file2.json": '{"data": [{"INPUT": ["2"]}]}',
    "data/INPUT": "",
    "ca.pem": "",
    "key.pem": "",
    "cert.pem": "",
}
"""The files that the lines name."""

_WINDOWS = {"duration": "5000ms", "repetitions": 3}
_RANDOM = {"inputs": {"*": {"generate": "random", "text_length": 128}}}


def _scenario(model: str = "m", **changes: Any) -> dict[str, Any]:
    """The scenario of `-m MODEL` with changed sections; those that are None are left out."""
    target = {"url": "http://localhost:8000", "model": model, "timeout": "10m", **changes.pop("target", {})}
    if changes.pop("grpc", False):
        target["url"] = target["url"].replace("http://localhost:8000", "grpc://localhost:8001")
    load = {"closed": {"concurrency": [1]}}
    document = {"name": model, "target": target, "workload": _RANDOM, "load": load, "measure": _WINDOWS, **changes}
    return {key: value for key, value in document.items() if value is not None}


def _closed(*concurrency: int) -> dict[str, Any]:
    return {"closed": {"concurrency": [*concurrency]}}


def _open(*rates: float, arrivals: str = "constant") -> dict[str, Any]:
    return {"open": {"rate": [*rates], "arrivals": arrivals}}


_INTERVALS = {"replay": {"trace": "my_intervals.txt", "format": "request_intervals", "loop": True}}
_LONG_STREAMS = {"requests_per_stream": 1_000_000_000, "in_flight": 1}
_METRICS = {"metrics_url": "http://localhost:8002/metrics"}

LINES: list[tuple[str, str, dict[str, Any]]] = [
    ("README.md", "-m simple", _scenario("simple")),
    ("docs/install.md", "-m model", _scenario("model")),
    (
        "docs/input_data.md",
        "-m mymodel -b 4 --shape IMAGE:3,224,224",
        _scenario(
            "mymodel",
            workload={
                "batch_size": 4,
                "inputs": {**_RANDOM["inputs"], "IMAGE": {"generate": "random", "text_length": 128, "shape": [3, 224, 224]}},
            },
        ),
    ),
    ("docs/input_data.md", "-m m --shared-memory=system", _scenario(shared_memory={"kind": "system"})),
    ("docs/input_data.md", "-m m --shared-memory=cuda", _scenario(shared_memory={"kind": "cuda"})),
    (
        "docs/input_data.md",
        "-m m --input-data json_file1.json --input-data json_file2.json",
        _scenario(workload={"data": ["json_file1.json", "json_file2.json"]}),
    ),
    (
        "docs/measurements_metrics.md",
        "-m inception_graphdef --concurrency-range 1:4 -f perf.csv",
        _scenario("inception_graphdef", load=_closed(1, 2, 3, 4)),
    ),
    (
        "docs/measurements_metrics.md",
        "-m resnet50_libtorch --collect-metrics -f output.csv --verbose-csv",
        _scenario("resnet50_libtorch", target=_METRICS),
    ),
    ("docs/inference_load_modes.md", "-m m --concurrency-range=4", _scenario(load=_closed(4))),
    ("docs/inference_load_modes.md", "-m m --request-rate-range=20", _scenario(load=_open(20))),
    ("docs/inference_load_modes.md", "-m m --request-intervals=my_intervals.txt", _scenario(load=_INTERVALS)),
    (
        "docs/inference_load_modes.md",
        "-m m --fixed-schedule --input-data=input_data.json",
        _scenario(workload=None, load={"replay": {"trace": "input_data.json", "format": "fixed_schedule"}}, measure={"repetitions": 1}),
    ),
    (
        "client: docs/examples/profile.py",
        (
            "-m vllm -i grpc --async --streaming -u localhost:8001 --measurement-mode=count_windows --measurement-request-count=10 "
            "--stability-percentage=999 --input-data=json_file1.json --profile-export-file=profile_export.json"
        ),
        _scenario(
            "vllm",
            grpc=True,
            workload={"data": ["json_file1.json"]},
            stream=_LONG_STREAMS,
            measure={"requests": 10, "repetitions": 3},
        ),
    ),
    # docs/cli.md, option by option
    ("general", "-m m -x 3", _scenario(target={"version": "3"})),
    ("general", "-m m --service-kind=triton", _scenario()),
    ("general", "-m m --bls-composing-models=modelA:3,modelB", _scenario(target={"composing_models": ["modelA:3", "modelB"]})),
    ("general", "-m m --model-signature-name=serving_default", _scenario()),
    ("general", "-m m -v", _scenario()),
    ("general", "-m m -v -v", _scenario()),
    ("measurement", "-m m --measurement-mode=time_windows", _scenario()),
    ("measurement", "-m m --measurement-mode=count_windows", _scenario(measure={"requests": 50, "repetitions": 3})),
    ("measurement", "-m m -p 2000", _scenario(measure={"duration": "2000ms", "repetitions": 3})),
    ("measurement", "-m m --measurement-interval=2000", _scenario(measure={"duration": "2000ms", "repetitions": 3})),
    (
        "measurement",
        "-m m --measurement-mode=count_windows --measurement-request-count=200",
        _scenario(measure={"requests": 200, "repetitions": 3}),
    ),
    ("measurement", "-m m -s 50", _scenario()),
    ("measurement", "-m m --stability-percentage=50", _scenario()),
    ("measurement", "-m m --percentile=85", _scenario()),
    ("measurement", "-m m --warmup-request-count=10", _scenario()),
    ("measurement", "-m m --request-count=100", _scenario(measure={"requests": 100, "warmup": "0s", "repetitions": 1})),
    ("measurement", "-m m -r 5", _scenario()),
    ("measurement", "-m m --max-trials=5", _scenario()),
    ("measurement", "-m m --concurrency-range=2:9:3", _scenario(load=_closed(2, 5, 8))),
    ("measurement", "-m m --concurrency-range=4:0:4 -l 100", _scenario(load=_closed(*range(4, 41, 4)))),
    (
        "measurement",
        "-m m -i grpc --request-parameter max_tokens:256:int",
        _scenario(grpc=True, workload={**_RANDOM, "parameters": {"max_tokens": 256}}),
    ),
    ("measurement", "-m m --request-rate-range=1.5:3:0.5", _scenario(load=_open(1.5, 2, 2.5, 3))),
    (
        "measurement",
        "-m m --request-rate-range=10:0.0:10 --latency-threshold=50 --percentile=99",
        _scenario(load={"search": {"slo": {"p99": "50ms"}, "arrivals": "constant", "min_rate": 10}}, measure={"duration": "5000ms"}),
    ),
    (
        "measurement",
        "-m m --request-rate-range=100 --request-distribution=poisson",
        _scenario(load=_open(100, arrivals="poisson")),
    ),
    ("measurement", "-m m --concurrency-range=1:3 -l 100", _scenario(load=_closed(1, 2, 3))),
    (
        "measurement",
        "-m m --concurrency-range=1:3 --latency-threshold=100 --percentile=95",
        _scenario(load=_closed(1, 2, 3), slo={"p95": "100ms"}),
    ),
    ("measurement", "-m m --concurrency-range=1:9:4 --binary-search -l 100", _scenario(load=_closed(1, 5, 9))),
    (
        "measurement",
        "-m m --request-rate-range=100:900:10 --binary-search -l 100 --percentile=90",
        _scenario(
            load={"search": {"slo": {"p90": "100ms"}, "arrivals": "constant", "min_rate": 100, "max_rate": 900}},
            measure={"duration": "5000ms"},
        ),
    ),
    ("measurement", "-m m --max-threads=32", _scenario()),
    (
        "sequences",
        "-m m --request-rate-range=100 --num-of-sequences=8",
        _scenario(load=_open(100), sequences={"length": {"uniform": [17, 23]}, "live": 8}),
    ),
    ("sequences", "-m m --sequence-length=10", _scenario(sequences={"length": {"uniform": [9, 11]}})),
    ("sequences", "-m m --sequence-length=10 --sequence-length-variation=0", _scenario(sequences={"length": 10})),
    (
        "sequences",
        "-m m --sequence-id-range=100:200",
        _scenario(sequences={"length": {"uniform": [17, 23]}, "first_id": 100, "end_id": 200}),
    ),
    ("sequences", "-m m --serial-sequences", _scenario(sequences={"length": {"uniform": [17, 23]}})),
    ("input data", "-m m --input-data=zero", _scenario(workload={"inputs": {"*": {"generate": "zeros", "text_length": 128}}})),
    ("input data", "-m m --input-data=random", _scenario()),
    ("input data", "-m m --input-data=data", _scenario(workload={"data": ["data"]})),
    ("input data", "-m m -b 8", _scenario(workload={"batch_size": 8, **_RANDOM})),
    (
        "input data",
        "-m m --shape=input_name:1,2,3",
        _scenario(workload={"inputs": {**_RANDOM["inputs"], "input_name": {"generate": "random", "text_length": 128, "shape": [1, 2, 3]}}}),
    ),
    ("input data", "-m m --string-data=hello", _scenario(workload={"inputs": {"*": {"generate": "random", "text": "hello"}}})),
    ("input data", "-m m --string-length=16", _scenario(workload={"inputs": {"*": {"generate": "random", "text_length": 16}}})),
    ("input data", "-m m --shared-memory=none", _scenario()),
    (
        "input data",
        "-m m --shared-memory=system --output-shared-memory-size=1024",
        _scenario(shared_memory={"kind": "system", "output_bytes": 1024}),
    ),
    ("input data", "-m m --input-tensor-format=json", _scenario(workload={**_RANDOM, "encoding": "json"})),
    ("input data", "-m m --input-tensor-format=binary --output-tensor-format=binary", _scenario()),
    ("request", "-m m -i http", _scenario()),
    ("request", "-m m -i grpc", _scenario(grpc=True)),
    ("request", "-m m -a", _scenario()),
    ("request", "-m m --async", _scenario()),
    ("request", "-m m --sync", _scenario()),
    ("request", "-m m -i grpc --streaming", _scenario(grpc=True, stream=_LONG_STREAMS)),
    ("request", "-m m -H Header:Value -H Other:Value", _scenario(target={"headers": {"Header": "Value", "Other": "Value"}})),
    ("request", "-m m -i grpc --grpc-compression-algorithm=gzip", _scenario(grpc=True, target={"compression": "gzip"})),
    ("request", "-m m -i grpc --grpc-compression-algorithm=none", _scenario(grpc=True)),
    ("server", "-m m -u triton:8000", _scenario(target={"url": "http://triton:8000"})),
    (
        "server",
        (
            "-m m -i grpc --ssl-grpc-use-ssl --ssl-grpc-root-certifications-file=ca.pem --ssl-grpc-private-key-file=key.pem "
            "--ssl-grpc-certificate-chain-file=cert.pem"
        ),
        _scenario(target={"url": "grpcs://localhost:8001", "tls": {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}}),
    ),
    (
        "server",
        "-m m -u https://proxy:443 --ssl-https-verify-peer=0 --ssl-https-verify-host=0",
        _scenario(target={"url": "https://proxy:443", "tls": {"verify": False}}),
    ),
    (
        "server",
        (
            "-m m -u https://proxy:443 --ssl-https-ca-certificates-file=ca.pem --ssl-https-client-certificate-file=cert.pem "
            "--ssl-https-client-certificate-type=PEM --ssl-https-private-key-file=key.pem --ssl-https-private-key-type=PEM"
        ),
        _scenario(target={"url": "https://proxy:443", "tls": {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}}),
    ),
    (
        "metrics",
        "-m m --collect-metrics --metrics-url=localhost:8002/metrics --metrics-interval=500 --verbose-csv",
        _scenario(target=_METRICS, metrics={"interval": "500ms"}),
    ),
    ("report", "-m m -f perf.csv", _scenario()),
    ("report", "-m m --profile-export-file profile_export.json", _scenario()),
    ("report", "-m m --verbose-csv", _scenario()),
    ("trace", "-m m --trace-level=TIMESTAMPS --trace-rate=1000 --trace-count=-1 --log-frequency=0", _scenario()),
    ("deprecated", "-m m --data-directory=data", _scenario(workload={"data": ["data"]})),
    ("deprecated", "-m m -d -c 4", _scenario(load=_closed(1, 2, 3, 4))),
    ("deprecated", "-m m -t 4", _scenario(load=_closed(4))),
    ("deprecated", "-m m -z", _scenario(workload={"inputs": {"*": {"generate": "zeros", "text_length": 128}}})),
]
