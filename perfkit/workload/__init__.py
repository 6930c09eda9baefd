"""What requests carry: input tensors, requests prepared ahead of time, and the answers expected to them."""
