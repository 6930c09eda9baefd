"""The CPU or the GPU that models run on."""
