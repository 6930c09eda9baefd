"""Both event loops, and a request to send."""

import asyncio

import numpy as np
import pytest
import uvloop

from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request):
    """Runs a coroutine on either event loop."""
    return uvloop.run if request.param == "uvloop" else asyncio.run


@pytest.fixture
def infer_request():
    return InferRequest("my model", (tensor_from_array("x", Datatype.FP32, np.arange(4).reshape(1, 4)),), version="3", id="7")
