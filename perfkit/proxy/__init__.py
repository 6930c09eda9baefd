"""The proxy of `perfkit record`: passes v2 traffic on unchanged, and notes the inference requests in it."""
