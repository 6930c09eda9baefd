"""`python -m server_stub`: no code of the current folder is run."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder, before anything is imported: a file there may have the name of a library

import json
import os
from collections.abc import Sequence

from perfkit.errors import PerfkitError, UsageError
from server_stub.heap import keep_freed_memory
from server_stub.options import parse_options

_SWITCH_INTERVAL_S = 0.0005


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until it is stopped. Returns the exit code: 2 for unusable options, 1 for other errors, 130 for a Ctrl-C at startup."""
    is_json = False
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
        is_json = options.log_format == "json"
        if options.cpus is not None:
            os.sched_setaffinity(0, options.cpus)
        if sys.stdin is None:
            os.open(os.devnull, os.O_RDONLY)  # if stdin is closed, the first socket would get its number, which libuv rejects
        keep_freed_memory()
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the server logs gRPC's errors itself
        # imported only now: NumPy, gRPC and ONNX Runtime start threads, which inherit the CPUs set above
        import uvloop

        from server_stub.server import serve

        # a model's thread takes the GIL several times for a batch; by default it waits 5 ms for a busy event loop each time
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        uvloop.run(serve(options))
    except PerfkitError as error:
        sys.stderr.write(
            json.dumps({"level": "error", "event": "failed", "message": str(error)}) + "\n" if is_json else f"server_stub: {error}\n"
        )
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:  # while libraries are imported; later the server stops in order
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
