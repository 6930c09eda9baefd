"""The commands, one module each: options, the call that does the work, and the exit code."""

import gc


def start() -> int:
    """Runs the command `perfkit`; an interrupt while it is still being imported ends it without a traceback."""
    gc.disable()  # imports make little garbage, and searching what they make takes a tenth of their time
    try:
        from perfkit.cli.main import main as run
        from perfkit.process.entry import end_without_collection

        try:
            return run()
        finally:
            end_without_collection()
    except KeyboardInterrupt:
        return 130
