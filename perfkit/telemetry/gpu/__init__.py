"""GPUs sampled through NVML."""
