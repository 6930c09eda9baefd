"""An ingress for the documentation's commands: TLS on port 443 in front of a server's HTTP and gRPC ports, with a path prefix over HTTP.

    python -m benchmarks.documentation.ingress certificates|serve FOLDER

`certificates` writes ca.pem, server.pem and server.key for `models.example`; `serve` relays until it is ended.
"""

import asyncio
import contextlib
import pathlib
import ssl
import sys

import trustme

NAME, PREFIX, PORT = "models.example", b" /team-a/", 443
HTTP_PORT, GRPC_PORT = 8000, 8001


def write_certificates(folder: pathlib.Path) -> None:
    """A certificate authority, and a certificate that it issued for `NAME`."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued = authority.issue_cert(NAME)
    issued.private_key_pem.write_to_path(folder / "server.key")
    for number, part in enumerate(issued.cert_chain_pems):
        part.write_to_path(folder / "server.pem", append=number > 0)


async def serve(folder: pathlib.Path) -> None:
    """Relays what comes over TLS to the server's port of the protocol that ALPN has chosen."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.set_alpn_protocols(["h2", "http/1.1"])
    server = await asyncio.start_server(_relay, port=PORT, ssl=context)
    print("ready", flush=True)
    await server.serve_forever()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    is_grpc = writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    answers, requests = await asyncio.open_connection("127.0.0.1", GRPC_PORT if is_grpc else HTTP_PORT)
    prefix = b"" if is_grpc else PREFIX
    with contextlib.suppress(OSError):
        await asyncio.gather(_copy(reader, requests, prefix), _copy(answers, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, prefix: bytes = b"") -> None:
    """Copies until the end; the prefix of paths is left out. Requests here are so small that each head comes in one piece."""
    try:
        while data := await reader.read(2**16):
            writer.write(data.replace(prefix, b" /") if prefix else data)
            await writer.drain()
    finally:
        writer.close()


if __name__ == "__main__":
    action, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if action == "certificates":
        write_certificates(folder)
    else:
        asyncio.run(serve(folder))
