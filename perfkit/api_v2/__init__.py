"""The v2 API, or Open Inference Protocol, on a transport: requests of tensors, answers, descriptions and administration of a server."""
