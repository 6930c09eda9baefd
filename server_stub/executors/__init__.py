"""Backends that execute a model: functions over arrays, and ONNX Runtime."""
