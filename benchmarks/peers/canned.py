"""Canned v2 servers for measuring clients: nginx (HTTP/1.1) and nghttpd (gRPC) answer every call from a file.

    python -m benchmarks.peers.canned [--http-port 8900] [--grpc-port 8901]

They run on the loopback until Ctrl-C, or for the length of a `with` block. Models: `simple`, and over HTTP also `large`, with
the inputs INPUT0 and INPUT1, INT32 [1, -1], and the constant outputs OUTPUT0 and OUTPUT1, INT32 [1, 16]. nginx answers `simple`
as soon as it has read the head of a request; for `large` it reads the whole body first, as nghttpd always does.
"""

import argparse
import contextlib
import functools
import json
import pathlib
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers.install import find_command
from benchmarks.peers.server_process import PeerError, free_ports, ready_server
from perfkit.protocol import protobuf, rest, rest_models, v2_pb2
from perfkit.protocol.message import InferResponse, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, tensor_from_array

MODEL, LARGE_MODEL, VERSION = "simple", "large", "1"
INPUTS, OUTPUTS = ("INPUT0", "INPUT1"), ("OUTPUT0", "OUTPUT1")
WIDTH = 16
_EXTENSIONS = ("binary_tensor_data", "model_configuration", "statistics")
_START_WITHIN_S = 10

# nginx rejects a POST to a file with 405, which `error_page` turns into the file: there is no shorter way to answer a POST with
# binary data. `mirror` makes nginx read the whole body first; the location that it mirrors to does nothing
_NGINX = """
worker_processes 1; daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/nginx.log;
events {{ worker_connections 16384; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; types {{ }}
  client_max_body_size 64m; client_body_buffer_size 4m; client_body_temp_path {root}/bodies;
  proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
  open_file_cache max=64 inactive=1d; open_file_cache_valid 1d;
  server {{
    listen 127.0.0.1:{port} backlog=4096; root {root}/http; default_type application/json; error_page 405 =200 $uri;
    location = /v2 {{ try_files /server.json =404; }}
    location /v2/health/ {{ return 200; }}
    location ~ ^/v2/models/(?<model>simple|large)(/versions/1)?$ {{ try_files /$model.json =404; }}
    location ~ ^/v2/models/(?<model>simple|large)(/versions/1)?/ready$ {{ return 200; }}
    location ~ ^/v2/models/(?<model>simple|large)(/versions/1)?/config$ {{ try_files /$model-config.json =404; }}
    location ~ ^/v2/models/(?<model>simple|large)(/versions/1)?/stats$ {{ try_files /$model-stats.json =404; }}
    location ~ ^/v2/models/simple(/versions/1)?/infer$ {{ rewrite ^ /simple last; }}
    location ~ ^/v2/models/large(/versions/1)?/infer$ {{ rewrite ^ /large last; }}
    location = /simple {{ default_type application/octet-stream; add_header Inference-Header-Content-Length {simple}; }}
    location = /large {{ default_type application/octet-stream; add_header Inference-Header-Content-Length {large}; mirror /nowhere; }}
    location = /nowhere {{ internal; return 204; }}
  }}
}}
"""


class CannedPorts(NamedTuple):
    """The ports of the running servers; None for a server that does not run."""

    http: int | None
    grpc: int | None


def scenario(
    port: int, load: Mapping[str, Any], measure: Mapping[str, Any], *, width: int = WIDTH, seed: int = 0, max_connections: int = 1024
) -> dict[str, Any]:
    """A scenario that sends zeros to `simple` of a running nginx, by one worker and without a warm-up unless `measure` says otherwise."""
    return {
        "name": "canned",
        "target": {"url": f"http://127.0.0.1:{port}", "model": MODEL, "version": VERSION, "max_connections": max_connections},
        "workload": {"seed": seed, "inputs": {name: {"generate": "zeros", "shape": [1, width]} for name in INPUTS}},
        "load": load,
        "measure": {"warmup": "0s", "repetitions": 1, "workers": 1, **measure},
    }


@contextlib.contextmanager
def serving(
    *,
    http_port: int | None = 0,
    grpc_port: int | None = None,
    window_bits: int | None = None,
    prefix: Sequence[str] = (),
    cpus: Sequence[int] = (),
) -> Iterator[CannedPorts]:
    """Runs nginx, nghttpd or both for the length of the block; port 0 means a free port, None no server.

    nghttpd's windows hold 2^`window_bits` - 1 bytes. `prefix` is put before the servers' commands, for instance `chrt -f 1`; `cpus` are the
    CPUs that they may use. Raises PeerError.
    """
    with tempfile.TemporaryDirectory(prefix="perfkit-canned-") as name, contextlib.ExitStack() as stack:
        root = pathlib.Path(name)
        root.chmod(0o755)  # nginx's worker may run as another user
        http, grpc = (port if port is None else free_ports(port)[0] for port in (http_port, grpc_port))
        commands: dict[int, list[str]] = {}
        if http is not None:
            commands[http] = [_installed("nginx"), "-c", str(_write_http(root, http))]
        if grpc is not None:
            options = ["--no-tls", "-a", "127.0.0.1", "-d", str(_write_grpc(root)), "--trailer=grpc-status: 0"]
            if window_bits is not None:
                options += [f"--window-bits={window_bits}", f"--connection-window-bits={window_bits}"]
            commands[grpc] = [_installed("nghttpd"), *options, str(grpc)]
        for port, command in commands.items():
            is_ready = functools.partial(_accepts_connections, port)
            log = root / f"{port}.log"
            stack.enter_context(ready_server([*prefix, *command], is_ready, log, within_s=_START_WITHIN_S, cpus=cpus))
        yield CannedPorts(http, grpc)


def _accepts_connections(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def http_answers() -> tuple[dict[str, bytes], dict[str, int]]:
    """The files that nginx answers with, and by model the length of the JSON part of an inference response."""
    files = {"server.json": _document({"name": "canned", "version": "1", "extensions": _EXTENSIONS})}
    lengths = {}
    for model in (MODEL, LARGE_MODEL):
        described = {"name": model, "platform": "canned", "backend": "canned", "max_batch_size": 0}
        tensors = {
            "input": [{"name": name, "data_type": "TYPE_INT32", "dims": [1, -1]} for name in INPUTS],
            "output": [{"name": name, "data_type": "TYPE_INT32", "dims": [1, WIDTH]} for name in OUTPUTS],
        }
        times = {field.name: {"count": 0, "ns": 0} for field in v2_pb2.InferStatistics.DESCRIPTOR.fields}
        counts = {"name": model, "version": VERSION, "last_inference": 0, "inference_count": 0, "execution_count": 0}
        files[f"{model}.json"] = _document(rest_models.encode_model_metadata(_metadata(model)))
        files[f"{model}-config.json"] = _document({**described, **tensors})
        files[f"{model}-stats.json"] = _document({"model_stats": [{**counts, "inference_stats": times, "batch_stats": []}]})
        headers, body = rest.encode_infer_response(_answer(model), dict.fromkeys(OUTPUTS, True))
        files[model], lengths[model] = b"".join(body), int(headers["Inference-Header-Content-Length"])
    return files, lengths


def grpc_answers() -> dict[str, bytes]:
    """The files that nghttpd answers with, by method: one framed message each."""
    tensors = {"input": (v2_pb2.ModelInput, INPUTS, -1), "output": (v2_pb2.ModelOutput, OUTPUTS, WIDTH)}
    config = v2_pb2.ModelConfig(name=MODEL, platform="canned", backend="canned")
    for field, (kind, names, width) in tensors.items():
        getattr(config, field).extend(kind(name=name, data_type=v2_pb2.DataType.Value("TYPE_INT32"), dims=[1, width]) for name in names)
    once = v2_pb2.StatisticDuration(count=1, ns=1)
    times = v2_pb2.InferStatistics(**{field.name: once for field in v2_pb2.InferStatistics.DESCRIPTOR.fields})
    counts = v2_pb2.ModelStatistics(name=MODEL, version=VERSION, inference_count=1, execution_count=1, inference_stats=times)
    messages = {
        "ServerLive": v2_pb2.ServerLiveResponse(live=True),
        "ServerReady": v2_pb2.ServerReadyResponse(ready=True),
        "ModelReady": v2_pb2.ModelReadyResponse(ready=True),
        "ServerMetadata": v2_pb2.ServerMetadataResponse(name="canned", version="1", extensions=_EXTENSIONS),
        "ModelMetadata": protobuf.model_metadata_message(_metadata(MODEL)),
        "ModelConfig": v2_pb2.ModelConfigResponse(config=config),
        "ModelStatistics": v2_pb2.ModelStatisticsResponse(model_stats=[counts]),
    }
    encoded = {name: message.SerializeToString() for name, message in messages.items()}
    encoded["ModelInfer"] = b"".join(protobuf.encode_infer_response(_answer(MODEL)))
    return {name: framed(message) for name, message in encoded.items()}


def framed(message: bytes) -> bytes:
    """A message as gRPC frames it: the flag for no compression, the length, the message."""
    return struct.pack(">BI", 0, len(message)) + message


def _metadata(model: str) -> ModelMetadata:
    inputs = tuple(TensorMetadata(name, "INT32", (1, -1)) for name in INPUTS)
    outputs = tuple(TensorMetadata(name, "INT32", (1, WIDTH)) for name in OUTPUTS)
    return ModelMetadata(model, (VERSION,), "canned", inputs, outputs)


def _answer(model: str) -> InferResponse:
    values = np.arange(WIDTH, dtype=np.int32).reshape(1, WIDTH)
    return InferResponse(model, VERSION, tuple(tensor_from_array(name, Datatype.INT32, values) for name in OUTPUTS))


def _document(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode()


def _write_http(root: pathlib.Path, port: int) -> pathlib.Path:
    """Writes nginx's answers and its configuration; returns the configuration file."""
    files, lengths = http_answers()
    _write(root / "http", files)
    configuration = root / "nginx.conf"
    configuration.write_text(_NGINX.format(root=root, port=port, **lengths), encoding="utf-8")
    return configuration


def _write_grpc(root: pathlib.Path) -> pathlib.Path:
    _write(root / "grpc" / protobuf.SERVICE, grpc_answers())
    return root / "grpc"


def _write(folder: pathlib.Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _installed(name: str) -> str:
    path = find_command(name)
    if path is None:
        raise PeerError(f"{name} is not installed: `python3 benchmarks/peers/install.py` installs it")
    return path


def main() -> int:
    """Serves until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--http-port", type=int, default=8900)
    parser.add_argument("--grpc-port", type=int, default=8901)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the servers too, as Ctrl-C does
    try:
        with contextlib.suppress(KeyboardInterrupt), serving(http_port=options.http_port, grpc_port=options.grpc_port) as ports:
            print(f"http://127.0.0.1:{ports.http} and grpc://127.0.0.1:{ports.grpc}; Ctrl-C stops them", flush=True)
            signal.pause()
    except PeerError as error:
        sys.stderr.write(f"canned: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
