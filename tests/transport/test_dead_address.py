"""A name whose first address answers nothing: every engine connects to the next one."""

import subprocess
import sys
from concurrent import futures

import grpc
import pytest

_SCRIPT = """
import asyncio, socket, sys
from perfkit.api_v2.client import make_client
from perfkit.clock import MonotonicClock
from perfkit.target.address import Address
from perfkit.transport.options import TransportOptions

async def main(engine, port):
    options = TransportOptions(engine=engine, timeout_ns=30_000_000_000)
    transport = make_client(Address("grpc", "dead.test", port), options, MonotonicClock()).transport
    await transport.open(1)
    await transport.aclose()
    print(*(entry[4][0] for entry in socket.getaddrinfo("dead.test", port, type=socket.SOCK_STREAM)))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.usefixtures("starts_python")
def test_the_next_address_of_a_name_is_connected_to(tmp_path, engine):
    (tmp_path / "hosts").write_text("127.0.0.2 live.test\n127.0.0.1 dead.test\n127.0.0.2 dead.test\n")
    in_own_namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
    command = [*in_own_namespace, str(tmp_path / "hosts")]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not permit a hosts file of the test's own")
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.2:0")
    server.start()
    done = subprocess.run([*command, sys.executable, "-c", _SCRIPT, engine, str(port)], capture_output=True, text=True, check=False)
    server.stop(None).wait()
    assert (done.returncode, done.stdout) == (0, "127.0.0.1 127.0.0.2\n"), done.stderr
