"""The Python interface: what `perfkit` and `perfkit.errors` export, from their docstrings and from their source, whose signatures are as people wrote them."""

import ast
import inspect
import textwrap
from collections.abc import Iterator

import perfkit
import perfkit.api
from perfkit import errors

_FUNCTIONS = ("run", "arun", "load_scenario", "load_result")
_CLASSES = ("Result", "Scenario", "LoadedScenario")
_ELSEWHERE = {
    "Result": "Its fields are those of [`result.json`](result-fields.md).",
    "Scenario": "Its keys are those of [a scenario file](scenario-keys.md).",
}


def python_interface() -> str:
    """Functions, classes and errors."""
    names = {*perfkit.__all__, *perfkit.api.__all__} - {"__version__"}
    if names != {*_FUNCTIONS, *_CLASSES}:
        raise ValueError(f"the page has {sorted({*_FUNCTIONS, *_CLASSES})}, and perfkit exports {sorted(names)}")
    return "\n\n".join([*_functions(), *_classes(), *_errors()])


def _functions() -> Iterator[str]:
    for name in _FUNCTIONS:
        yield f"## `perfkit.{name}`"
        yield from _described(getattr(perfkit.api, name))


def _classes() -> Iterator[str]:
    for name in _CLASSES:
        model = getattr(perfkit.api, name)
        yield f"## `{'perfkit' if name in perfkit.__all__ else 'perfkit.api'}.{name}`"
        yield inspect.cleandoc(model.__doc__ or "")
        if name in _ELSEWHERE:
            yield _ELSEWHERE[name]
        for member, value in list(vars(model).items()):
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if not member.startswith("_") and inspect.isfunction(function) and function.__module__ == model.__module__ and function.__doc__:
                yield f"### `{name}.{member}`"
                yield from _described(function)


def _errors() -> Iterator[str]:
    yield "## Errors"
    yield "All are in `perfkit.errors`."
    rows = [
        f"| `{name}` | `{one.__bases__[0].__name__}` | {' '.join((one.__doc__ or '').split())} |"
        for name, one in vars(errors).items()
        if inspect.isclass(one) and issubclass(one, Exception) and one.__module__ == errors.__name__
    ]
    yield "\n".join(["| error | is a | raised for |", "|---|---|---|", *rows])


def _described(function: object) -> Iterator[str]:
    """The signature as a code block, then the docstring."""
    source = textwrap.dedent(inspect.getsource(function))  # type: ignore[arg-type] # a function or a property's getter
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        raise TypeError(f"no function: {function}")
    lines = source.splitlines()
    first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
    yield "```python\n" + "\n".join(lines[first - 1 : node.body[0].lineno - 1]).rstrip().removesuffix(":") + ": ...\n```"
    yield inspect.cleandoc(ast.get_docstring(node) or "")
