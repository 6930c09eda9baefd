"""Both event loops."""

import asyncio

import pytest
import uvloop


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request):
    """Runs a coroutine on either event loop."""
    return uvloop.run if request.param == "uvloop" else asyncio.run
