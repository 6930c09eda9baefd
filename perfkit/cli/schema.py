"""`perfkit schema`: prints the JSON Schema of scenarios, results or verdicts."""

import argparse
import json

from perfkit.cli.exit_code import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=("scenario", "result", "verdict"),
        default="scenario",
        help="the document whose schema is printed; default: scenario",
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.gate.verdict import Verdict
    from perfkit.result.model import Result
    from perfkit.scenario.model import Scenario

    if options.what == "scenario":
        schema = Scenario.model_json_schema(by_alias=True)
    elif options.what == "verdict":
        schema = Verdict.model_json_schema(by_alias=True, mode="serialization")
    else:
        schema = Result.model_json_schema(by_alias=True, mode="serialization")
    print(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1))
    return ExitCode.DONE
