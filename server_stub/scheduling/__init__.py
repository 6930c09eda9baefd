"""Request queues, batching and sequences, and the scheduler that feeds model instances."""
