"""Traces of requests as Triton makes them: sampled by the v2 trace settings, exported as OpenTelemetry spans or written to a file."""
