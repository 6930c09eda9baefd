"""A module that is started as a child, and says nothing until its stdin ends."""

import sys

if __name__ == "__main__":
    sys.stdin.read()
