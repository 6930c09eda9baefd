"""The fixtures of the transports' tests."""

from tests.transport.conftest import infer_request, run

__all__ = ["infer_request", "run"]
