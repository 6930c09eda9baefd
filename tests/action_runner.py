"""Runs a composite GitHub action step by step, as GitHub's runner does: expressions, conditions, outputs, exit codes.

Actions that it uses are not run: setup-python gives the Python of the tests, and of upload-artifact the existing paths are listed.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import yaml

_WAIT_S = 120
_EXPRESSION = re.compile(r"\$\{\{(.*?)}}")
_TOKEN = re.compile(r"'[^']*'|[a-z]+\(\)|[a-z]+(?:\.[\w-]+)+|&&|\|\||==|!=|[!()]|\s+")
_OPERATORS = {"&&": " and ", "||": " or ", "!": " not ", "always()": "True", "cancelled()": "False"}


@dataclasses.dataclass
class ActionRun:
    """What an action did: whether it succeeded, its outputs, the job's summary, what it uploads, and the log of each step by its name."""

    succeeded: bool
    outputs: dict[str, str]
    summary: str
    uploaded: list[str]
    log: dict[str, str]
    returncodes: dict[str, int]


def run_action(file: pathlib.Path, workspace: pathlib.Path, inputs: dict[str, str], *, github: Any = None, **environ: str) -> ActionRun:
    """Runs the action in a job whose working folder is `workspace`; `environ` are further variables of the job."""
    action = yaml.safe_load(file.read_text())
    unknown = inputs.keys() - action["inputs"].keys()
    assert not unknown, unknown
    given = {name: inputs.get(name, one.get("default", "")) for name, one in action["inputs"].items()}
    context: dict[str, Any] = {"inputs": given, "steps": {}, "github": github or {"event_name": "push"}}
    temporary = workspace.with_name(f"{workspace.name}.runner")
    temporary.mkdir(exist_ok=True)
    run = ActionRun(succeeded=True, outputs={}, summary="", uploaded=[], log={}, returncodes={})
    for number, step in enumerate(action["runs"]["steps"]):
        condition = str(step.get("if", "success()"))
        if "always()" not in condition and "cancelled()" not in condition:
            condition = f"success() && ({condition})"
        state = context["steps"].setdefault(step.get("id", str(number)), {"outputs": {}, "outcome": "skipped"})
        if not _evaluate(condition.removeprefix("${{").removesuffix("}}"), context, succeeded=run.succeeded):
            continue
        files = {name: temporary / f"{name}-{number}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for path in files.values():
            path.write_text("")
        if "uses" in step:
            code = _use(step, context, workspace, run, state)
        else:
            known = {
                "PATH": os.environ["PATH"],
                "HOME": str(temporary),
                "GITHUB_ACTIONS": "true",
                "GITHUB_ACTION_PATH": str(file.parent),
                "RUNNER_TEMP": str(temporary),
                **{name: str(path) for name, path in files.items()},
                **environ,
                **{name: _fill(str(value), context) for name, value in step.get("env", {}).items()},
            }
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(command, cwd=workspace, env=known, capture_output=True, text=True, timeout=_WAIT_S, check=False)
            code, run.log[step["name"]] = done.returncode, done.stdout + done.stderr
        state["outputs"] |= dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        run.returncodes[step["name"]] = code
        state["outcome"] = "success" if code == 0 else "failure"
        run.succeeded &= code == 0 or step.get("continue-on-error") is True
        run.summary += files["GITHUB_STEP_SUMMARY"].read_text()
    run.outputs = {name: _fill(one["value"], context) for name, one in action["outputs"].items()}
    return run


def _use(step: dict[str, Any], context: dict[str, Any], workspace: pathlib.Path, run: ActionRun, state: dict[str, Any]) -> int:
    used, options = step["uses"].partition("@")[0], {name: _fill(str(value), context) for name, value in step["with"].items()}
    if used == "actions/setup-python":
        assert options["update-environment"] == "False"  # YAML's false
        state["outputs"]["python-path"] = sys.executable
    else:
        assert used == "actions/upload-artifact"
        run.uploaded = [path for path in options["path"].split() if (workspace / path).exists()]
    return 0


def _fill(text: str, context: dict[str, Any]) -> str:
    return _EXPRESSION.sub(lambda found: str(_evaluate(found[1], context, succeeded=True)), text)


def _evaluate(expression: str, context: dict[str, Any], *, succeeded: bool) -> Any:
    """The value of an expression of GitHub's language, as far as this action uses it; what is not there is an empty text."""
    python, values, rest = "", dict[str, Any](), expression
    while rest:
        token = _TOKEN.match(rest)
        assert token, f"not known to this runner: {rest}"
        rest = rest[token.end() :]
        word = token[0]
        if re.match(r"[a-z]+\.", word):
            value: Any = context
            for key in word.split("."):
                value = value.get(key, "") if isinstance(value, dict) else ""
            values[name := f"v{len(values)}"] = value
            word = name
        python += {**_OPERATORS, "success()": str(succeeded)}.get(word, " " if word.isspace() else word)
    return eval(python.strip(), {"__builtins__": {}}, values)  # noqa: S307 - its tokens were checked
