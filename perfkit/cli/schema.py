"""`perfkit schema`: prints the JSON Schema of a file that perfkit reads or writes."""

import argparse
import json

from perfkit.cli.exit_code import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    from perfkit.cli.schema_model import DOCUMENTS

    documents = "; ".join(f"{name}: {what}" for name, (what, _) in DOCUMENTS.items())
    parser.add_argument(
        "what", nargs="?", choices=tuple(DOCUMENTS), default="scenario", help=f"whose schema is printed; default: scenario. {documents}"
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.cli.schema_model import schema_of

    print(json.dumps(schema_of(options.what), indent=1))
    return ExitCode.DONE
