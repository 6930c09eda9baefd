"""The bundled v2 reference server: `python -m server_stub`, or `perfkit serve`.

`config` its options · `server` its life from the first model to the last request · `http_front`, `grpc_front` the two
ways in, `grpc_stream` one call of many requests, `metrics_front` a third for the counts that `metrics` writes ·
`http_connections`, `grpc_server` their ports, with `limits` and `tls` · `http_generate` one flat object in, one out ·
`http_administration`, `grpc_administration` what they are told beside inference · `shared_memory` clients' regions, and
`shared_requests` that name them · `settings` of traces and of the `log` · `inference` what all check and answer, pure ·
`repository` the models by name · `model` one of them, `counted` what all of them count · `scheduler` brings requests from a
`line` to its instances, in the order that `batching` or `sequences` give, and counts in `statistics` · `execution` a batch
in one instance · `devices` where that is, with `cuda_driver`, `cuda_memory` and `gpu_metrics` for GPUs · `executors` what
computes · `models` the built-in ones, and those from a folder · `synthetic` the one that answers by a declared queue ·
`http_inference` an infer request over HTTP, `http_brief` small ones that go without aiohttp.
"""
