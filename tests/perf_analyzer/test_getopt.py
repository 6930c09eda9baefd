import pytest

from perfkit.perf_analyzer.getopt import Option, OptionError, read_options

SHORT = "vb:p:"
LONG = {"async": False, "sync": False, "sequence-length": True, "sequence-length-variation": True, "shape": True, "model-repository": True}


def _read(*arguments: str) -> list[tuple[str, str | None]]:
    return [(option.name, option.value) for option in read_options(arguments, SHORT, LONG)]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["-b", "8"], [("b", "8")]),
        (["-b8"], [("b", "8")]),
        (["-b=8"], [("b", "=8")]),
        (["-vvb", "8"], [("v", None), ("v", None), ("b", "8")]),
        (["-vp5000"], [("v", None), ("p", "5000")]),
        (["--shape", "a:3"], [("shape", "a:3")]),
        (["--shape=a=3"], [("shape", "a=3")]),
        (["--shape="], [("shape", "")]),
        (["--model-repo=x"], [("model-repository", "x")]),
        (["--sequence-length", "3"], [("sequence-length", "3")]),
        (["--sequence-length-", "3"], [("sequence-length-variation", "3")]),
        (["localhost:8000", "-v", "-", "--async"], [("v", None), ("async", None)]),
        (["-b", "-v"], [("b", "-v")]),
        (["--shape", "--"], [("shape", "--")]),
        (["-v", "--", "-b", "8"], [("v", None)]),
    ],
)
def test_options_are_read_as_by_getopt_long(arguments, options):
    assert _read(*arguments) == options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--s"], "Invalid long option '--s'"),
        (["--seq", "3"], "Invalid long option '--seq'"),
        (["--nothing=3"], "Invalid long option '--nothing=3'"),
        (["--async=3"], "Missing value for option '--async=3'"),
        (["--shape"], "Missing value for option '--shape'"),
        (["-h"], "Invalid short option '-h'"),
        (["-v:"], "Invalid short option '-:'"),
        (["-b"], "Invalid short option '-b'"),
    ],
)
def test_a_bad_option_is_refused_with_perf_analyzers_words(arguments, message):
    with pytest.raises(OptionError) as error:
        _read(*arguments)
    assert str(error.value) == message


def test_options_before_a_bad_one_are_read():
    options = read_options(["-b8", "-k"], SHORT, LONG)
    assert next(options) == Option("b", "8")
