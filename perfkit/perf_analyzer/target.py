"""The server of a perf_analyzer command, as the section `target` of a scenario."""

from typing import Any

from perfkit.perf_analyzer.draft import UnsupportedError
from perfkit.perf_analyzer.options import Options
from perfkit.scenario.credentials import escaped

_GRPC_PORT_WITHOUT_ONE = 443
_TIMEOUT = "10m"
"""perf_analyzer waits without an end."""


def target_of(options: Options) -> dict[str, Any]:
    """The keys and values of `target`. Raises UnsupportedError for a URL that the protocol does not take."""
    target: dict[str, Any] = {"url": _url(options), "model": options.model, "timeout": _TIMEOUT}
    if options.version:
        target["version"] = options.version
    if options.headers:
        target["headers"] = {name: escaped(value.strip()) for name, value in options.headers.items()}
    tls = options.tls
    given: dict[str, Any] = {key: value for key, value in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)) if value}
    if not tls.verify:
        given["verify"] = False
    if tls.is_used and given:
        target["tls"] = given
    if options.compression != "none":
        target["compression"] = options.compression
    if options.collects_metrics:
        url = options.metrics_url
        target["metrics_url"] = url if "://" in url else f"http://{url}"
    if options.bls_composing_models:
        target["composing_models"] = list(options.bls_composing_models)
    return target


def _url(options: Options) -> str:
    url = options.url
    if options.protocol == "http":
        return url if "://" in url else f"http://{url}"
    if url.startswith("unix:"):
        return url
    scheme, separator, rest = url.partition("://")
    if separator and scheme not in ("grpc", "grpcs", "dns"):
        raise UnsupportedError(f"perfkit: -u {url}: over gRPC give host and port without {scheme}://")
    place = rest.lstrip("/") if separator else url
    host = place.rpartition("]")[2] if place.startswith("[") else place
    has_port = ":" in host
    return f"{'grpcs' if options.tls.is_used else 'grpc'}://{place}{'' if has_port else f':{_GRPC_PORT_WITHOUT_ONE}'}"
