"""gRPC transports."""
