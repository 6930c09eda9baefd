"""A pseudo-terminal to draw on."""

import fcntl
import os
import pty
import struct
import termios


class Terminal:
    """A pseudo-terminal whose window can be resized; `text` is what was written to it since the last call."""

    def __init__(self):
        self.master, slave = pty.openpty()
        self.path = os.ttyname(slave)
        self.slave = slave
        self.resize(80, 30)
        os.set_blocking(self.master, False)

    def resize(self, columns, lines):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def text(self):
        found = b""
        while True:
            try:
                found += os.read(self.master, 65536)
            except BlockingIOError:
                return found.decode().replace("\r\r\n", "\n").replace("\r\n", "\n")
