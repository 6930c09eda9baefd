"""GNU getopt_long: options in any order, unambiguous prefixes, attached values, and ignored positional arguments."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """An option as given: the name of a long one, or the letter of a short one; None as value if it takes none."""

    name: str
    value: str | None


class OptionError(ValueError):
    """An option that is unknown or ambiguous, that lacks its value, or that takes none and has one."""


def read_options(arguments: Sequence[str], short: str, long: Mapping[str, bool]) -> Iterator[Option]:
    """The options among the arguments, in order.

    `short` is getopt's string: letters, each followed by a colon if it takes a value. `long` says of each name whether it takes one.
    Options may follow positional arguments, which are ignored, up to `--`. Raises OptionError at the first bad option.
    """
    takes_value = {letter: short[place + 1 : place + 2] == ":" for place, letter in enumerate(short) if letter != ":"}
    rest = iter(arguments)
    for word in rest:
        if word == "--":
            return
        if word.startswith("--"):
            yield _long_option(word, rest, long)
        elif word.startswith("-") and word != "-":
            yield from _short_options(word[1:], rest, takes_value)


def _long_option(word: str, rest: Iterator[str], long: Mapping[str, bool]) -> Option:
    given, equals, attached = word[2:].partition("=")
    matches = [given] if given in long else [name for name in long if name.startswith(given)]
    if len(matches) != 1:
        raise OptionError(f"Invalid long option '{word}'")
    [name] = matches
    if not long[name]:
        if equals:
            raise OptionError(f"Missing value for option '{word}'")
        return Option(name, None)
    value = attached if equals else next(rest, None)
    if value is None:
        raise OptionError(f"Missing value for option '{word}'")
    return Option(name, value)


def _short_options(letters: str, rest: Iterator[str], takes_value: Mapping[str, bool]) -> Iterator[Option]:
    for place, letter in enumerate(letters):
        if letter not in takes_value:
            raise OptionError(f"Invalid short option '-{letter}'")
        if not takes_value[letter]:
            yield Option(letter, None)
            continue
        value = letters[place + 1 :] or next(rest, None)
        if value is None:
            raise OptionError(f"Invalid short option '-{letter}'")
        yield Option(letter, value)
        return
