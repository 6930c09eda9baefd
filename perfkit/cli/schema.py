"""`perfkit schema`: prints the JSON Schema of scenarios, results or verdicts."""

import argparse
import json

from perfkit.cli.exit_code import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    documents = ("scenario", "result", "verdict")
    parser.add_argument("what", nargs="?", choices=documents, default="scenario", help="whose schema is printed; default: scenario")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.gate.verdict import Verdict
    from perfkit.result.model import Result
    from perfkit.scenario.model import Scenario

    models: dict[str, type[Scenario | Result | Verdict]] = {"scenario": Scenario, "result": Result, "verdict": Verdict}
    model = models[options.what]
    schema = model.model_json_schema(by_alias=True, mode="validation" if model is Scenario else "serialization")
    print(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1))
    return ExitCode.DONE
