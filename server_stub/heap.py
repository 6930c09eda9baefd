"""The C library's heap, told to keep the memory of large messages for the next ones."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 2**30
_OLD_MAX_MMAP_THRESHOLD = 2**25  # before glibc 2.35


def keep_freed_memory() -> None:
    """Let freed memory stay in the process. Does nothing on a C library without `mallopt`.

    Only what exceeds 1 GiB at the heap's end is returned; memory below a block that is still in use is not.

    By default glibc maps large buffers anew, returns them when they are freed, and shrinks the heap too. The kernel must then clear
    each page again: for gRPC messages of 0.6 to 38 MB, that was two thirds of the server's CPU time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    # both or none: one alone would end glibc's own adjustment of the other
    if mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES) or mallopt(_M_MMAP_THRESHOLD, _OLD_MAX_MMAP_THRESHOLD):
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
