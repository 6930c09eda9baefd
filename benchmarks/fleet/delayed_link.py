"""A link with delay: Ethernet frames are relayed between two TAP devices, each a given time after it came.

    python delayed_link.py DEVICE OTHER_DEVICE DELAY_NS OTHER_DELAY_NS

DELAY_NS is that of the frames that DEVICE's host sends. Frames keep their order; a frame is lost only while ten thousand wait. The program
makes the devices, prints `ready`, and ends with its stdin, which removes them. (The kernel's own delay, netem, is not built into every kernel.)
"""

import collections
import fcntl
import os
import select
import struct
import sys
import time

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_MAX_FRAME_BYTES = 65536
_MAX_WAITING = 10_000


def open_tap(name: str) -> int:
    """Makes a TAP device, and returns its file descriptor; raises OSError."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return descriptor


def relay(taps: tuple[int, int], delays_ns: tuple[int, int], end: int) -> None:
    """Relays frames both ways until `end` can be read."""
    waiting: tuple[collections.deque[tuple[int, bytes]], ...] = (collections.deque(), collections.deque())
    while True:
        due_ns = min((frames[0][0] for frames in waiting if frames), default=None)
        wait_s = None if due_ns is None else max(0, due_ns - time.monotonic_ns()) / 1e9
        readable = select.select([*taps, end], [], [], wait_s)[0]
        if end in readable:
            return
        for tap, delay_ns, frames in zip(taps, delays_ns, waiting, strict=True):
            if tap in readable:
                now_ns = time.monotonic_ns()
                frame = os.read(tap, _MAX_FRAME_BYTES)
                if len(frames) < _MAX_WAITING:  # a real link's queue is bounded, too
                    frames.append((now_ns + delay_ns, frame))
        now_ns = time.monotonic_ns()
        for frames, other in zip(waiting, reversed(taps), strict=True):
            while frames and frames[0][0] <= now_ns:
                try:
                    os.write(other, frames.popleft()[1])
                except OSError:  # the device is down: the frame is lost, as on a cable without a peer
                    continue


def main() -> None:
    """Relays until stdin ends."""
    device, other_device, delay_ns, other_delay_ns = sys.argv[1:]
    taps = open_tap(device), open_tap(other_device)
    print("ready", flush=True)
    relay(taps, (int(delay_ns), int(other_delay_ns)), sys.stdin.fileno())


if __name__ == "__main__":
    main()
