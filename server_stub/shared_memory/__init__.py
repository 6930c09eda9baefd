"""Shared memory regions that clients register, and tensors that lie in them."""
