"""What requests carry: seeded tensors, and the pool of requests made ahead of time."""
