"""Exit code 1 if a v2 server at this port, 8000, answers that it is not ready, or does not answer; 0 if none listens there.

The images' health check: a container that measures has no server, and is healthy as long as it runs.
"""

import sys
import urllib.error
import urllib.request

PORT = 8000
TIMEOUT_S = 3


def is_healthy(port: int = PORT, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether the server at a port of this machine is ready, or there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError as error:  # also any status but 2xx
        return isinstance(error.reason, ConnectionRefusedError)
    except OSError:  # an answer that breaks off, or does not come in time
        return False


if __name__ == "__main__":
    sys.exit(not is_healthy())
