"""The commands, one module each: options, the call that does the work, and the exit code."""


def start() -> int:
    """Runs the command `perfkit`; an interrupt while it is still being imported ends it without a traceback."""
    try:
        from perfkit.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
