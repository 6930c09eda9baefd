"""The commands, one module each: options, the call that does the work, and the exit code."""


def start() -> int:
    """Runs the command `perfkit`; an interrupt while it is still being imported ends it without a traceback."""
    try:
        from perfkit.process.entry import end_without_collection, start_without_collection

        start_without_collection()
        from perfkit.cli.main import main as run

        try:
            return run()
        finally:
            end_without_collection()
    except KeyboardInterrupt:
        return 130
