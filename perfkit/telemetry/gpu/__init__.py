"""GPUs of this machine, sampled through NVML."""
