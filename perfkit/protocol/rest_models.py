"""What v2 says of models over HTTP: readiness, metadata, configuration, and the repository's index, as JSON documents."""

import dataclasses
import hashlib
import json
import re
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.config_keys import config_keys
from perfkit.protocol.message import IndexedModel, ModelConfig, ModelMetadata, TensorMetadata, composing_model, highest_sequence_id
from perfkit.protocol.rest_json import load_document, read_list, read_list_or_none, read_text
from perfkit.protocol.tensor import Buffer

_SIZE = re.compile(r"-?[0-9]{1,19}")


def decode_index_request(body: Buffer) -> bool:
    """Whether an index request is for ready models only; the body may be empty."""
    ready = (load_document(body, "request") if len(body) else {}).get("ready", False)
    if not isinstance(ready, bool):
        raise ProtocolError("attempt to access JSON non-boolean as boolean", ErrorKind.INTERNAL)
    return ready


def decode_model_index(body: Buffer) -> tuple[IndexedModel, ...]:
    """Reads the answer to `POST /v2/repository/index`; raises ProtocolError if it is invalid."""
    try:
        document = json.loads(bytes(body))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, list) or not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in document):
        raise ProtocolError("the server's repository index is not v2")
    return tuple(IndexedModel(one["name"], *(str(one.get(key) or "") for key in ("version", "state", "reason"))) for one in document)


def named_models(document: object) -> tuple[IndexedModel, ...]:
    """The models in KServe's answer to `GET /v2/models`, `{"models": ["a"]}`, without a state; empty for any other document."""
    names = document.get("models") if isinstance(document, dict) else None
    return tuple(IndexedModel(name) for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def decode_ready(body: Buffer) -> bool:
    """Whether the body of a readiness answer with status 200 says ready: Triton's is empty, KServe's is `{"ready": …}`."""
    try:
        document = json.loads(bytes(body))
    except (ValueError, RecursionError):
        return True
    return not isinstance(document, dict) or document.get("ready") is not False


def encode_model_metadata(metadata: ModelMetadata) -> dict[str, Any]:
    """The JSON document of `GET /v2/models/NAME`."""
    document: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(metadata)))  # with lists for tuples
    return document


def decode_model_metadata(body: Buffer) -> ModelMetadata:
    """Reads the answer to `GET /v2/models/NAME`; raises ProtocolError if it is invalid."""
    document = load_document(body, "model metadata")
    try:
        inputs, outputs = (tuple(_read_metadata(one) for one in read_list_or_none(document, key)) for key in ("inputs", "outputs"))
        versions = tuple(str(version) for version in read_list_or_none(document, "versions"))
        return ModelMetadata(read_text(document, "name", required=True), versions, read_text(document, "platform"), inputs, outputs)
    except ProtocolError as error:
        raise ProtocolError(f"the server's model metadata is not v2: {error}") from None


def decode_model_config(body: Buffer) -> ModelConfig:
    """Reads the answer to `GET /v2/models/NAME/config`; raises ProtocolError if it is invalid."""
    try:
        document = json.loads(bytes(body))
        size = int(document.get("max_batch_size", 0))
        required = frozenset(str(one.get("name")) for one in _objects(document.get("input")) if not one.get("optional"))
        ensemble = document.get("ensemble_scheduling")
        steps = _objects(ensemble.get("step") if isinstance(ensemble, dict) else None)
        policy = document.get("model_transaction_policy")
        is_decoupled = isinstance(policy, dict) and policy.get("decoupled") is True
        batching = document.get("sequence_batching")
        control_inputs = _objects(batching.get("control_input") if isinstance(batching, dict) else None)
        controls = [control for one in control_inputs for control in _objects(one.get("control"))]
        id_types = [str(one.get("data_type")) for one in controls if one.get("kind") == "CONTROL_SEQUENCE_CORRID"]
        models = dict.fromkeys(composing_model(str(step.get("model_name")), int(step.get("model_version", -1))) for step in steps)
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        size = -1
    if not 0 <= size < 2**31:
        raise ProtocolError("the server's model configuration is not v2")
    sha256 = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    has_sequences, tensors = isinstance(batching, dict), [*_objects(document.get("input")), *_objects(document.get("output"))]
    shapes = {str(one.get("name")): dims for one in tensors if (dims := _dims(one.get("dims"))) is not None}
    return ModelConfig(
        size, sha256, required, tuple(models), is_decoupled, has_sequences, highest_sequence_id(id_types), shapes, config_keys(document)
    )


def _dims(value: object) -> tuple[int, ...] | None:
    """The dimensions of a configuration, in which 64-bit numbers may be texts; None for anything else."""
    dims = value if isinstance(value, list) else [None]
    sizes = tuple(int(size) for size in dims if isinstance(size, int | str) and _SIZE.fullmatch(str(size)))
    return sizes if len(sizes) == len(dims) else None


def _objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list; empty for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _read_metadata(entry: object) -> TensorMetadata:
    fields = entry if isinstance(entry, dict) else {}
    shape = read_list(fields, "shape", required=True)
    # 2**63 has 19 digits; Python refuses to convert very long texts
    sizes = tuple(int(size) for size in shape if isinstance(size, int | str) and _SIZE.fullmatch(str(size)))
    if len(sizes) < len(shape) or any(not -1 <= size < 2**63 for size in sizes):
        found = str(shape)[:100]
        raise ProtocolError(f"Unable to parse 'shape': expected 64-bit dimensions, or -1 for an open dimension, found {found}")
    return TensorMetadata(read_text(fields, "name", required=True), read_text(fields, "datatype", required=True), sizes)
