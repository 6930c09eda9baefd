"""A v2 server as a program: `python -m tests.v2_process PORT PIDS [--ends-at REQUEST] [--in-start START] [--by-signal SIGNAL]`.

It adds its process id to the file PIDS, so that this has a line for each start. At the request with that number, in that start or in any,
it writes why, and ends with exit code 7, or by that signal.
"""

import argparse
import os
import pathlib
import threading

from tests.json_server import JsonServer, v2_handler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("pids", type=pathlib.Path)
    parser.add_argument("--ends-at", type=int)
    parser.add_argument("--in-start", type=int)
    parser.add_argument("--by-signal", type=int)
    options = parser.parse_args()
    with options.pids.open("a") as file:
        file.write(f"{os.getpid()}\n")
    start = len(options.pids.read_text().splitlines())

    def on_inference(number):
        if number == options.ends_at and options.in_start in (None, start):
            os.write(1, b"no memory left\n")
            if options.by_signal is not None:
                os.kill(os.getpid(), options.by_signal)
                threading.Event().wait()  # the signal may be taken by another thread, a moment later
            os._exit(7)

    JsonServer(("127.0.0.1", options.port), v2_handler(on_inference)).serve_forever()


if __name__ == "__main__":
    main()
