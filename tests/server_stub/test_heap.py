"""The memory of large messages stays in the server's process."""

import pathlib
import resource
from collections.abc import Callable

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2


def page_faults(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


@pytest.mark.usefixtures("starts_python")  # a fork begins with the heap of what it was forked from
def test_large_messages_do_not_make_the_kernel_map_new_memory_for_each(start_server):
    array, count = np.zeros((1, 2**22), np.float32), 8
    message = service_pb2.ModelInferRequest(model_name="identity_fp32", raw_input_contents=[array.tobytes()])
    message.inputs.add(name="INPUT0", datatype="FP32", shape=array.shape)
    encoded = message.SerializeToString()
    unlimited = [("grpc.max_receive_message_length", -1)]
    with start_server("--model", "identity_fp32") as server, grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", unlimited) as channel:
        call: Callable[..., bytes] = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(8):  # the heap grows
            call(encoded, timeout=60)
        before = page_faults(server.process.pid)
        for _ in range(count):
            call(encoded, timeout=60)
        faults = page_faults(server.process.pid) - before
    assert faults < count * array.nbytes / resource.getpagesize()  # the tensors' own pages; new ones would be three times as many
