"""The standard files of this process: stdin, stdout and stderr."""

import os


def open_standard_files() -> None:
    """Opens /dev/null in place of those that the caller has closed, for this process and its children.

    Otherwise the next file to be opened would get the number of a standard file, which libuv aborts on closing.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
