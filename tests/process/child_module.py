"""A module that is started as a child: it says what it sees, or does what its argument says, and ends with its stdin."""

import json
import os
import signal
import sys

import perfkit

if __name__ == "__main__":
    if sys.argv[1:] == ["end"]:
        sys.exit(0)
    if sys.argv[1:] == ["fail"]:
        sys.exit(3)
    if sys.argv[1:] == ["hang"]:
        signal.pause()
    seen = {"perfkit": perfkit.__file__, "arguments": sys.argv[1:], "name": __name__, "path": sys.path, "environment": dict(os.environ)}
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
