"""The commands, one module each: options, the call that does the work, and the exit code."""


def main() -> int:
    """The command `perfkit`, which can be interrupted as soon as Python runs it: loading takes long enough to change one's mind."""
    try:
        from perfkit.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
