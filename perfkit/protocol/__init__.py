"""The v2 (Open Inference) protocol as pure functions between values and bytes, in both directions.

`tensor` holds the datatypes, `message` the values, `rest` the HTTP bodies, `protobuf` the gRPC messages. Nothing here
does I/O; the driver and the bundled server share it. Sources: Triton's protocol documents and the code behind them.
"""
