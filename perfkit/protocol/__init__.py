"""The v2 (Open Inference) protocol and HTTP/2 as pure functions between values and bytes, in both directions.

`tensor` holds the datatypes, `message` the values, `rest` the HTTP bodies, `protobuf` the gRPC messages, `http2` the
frames. Nothing here does I/O; perfkit and the bundled server share it. Sources: Triton's protocol documents and code.
"""
