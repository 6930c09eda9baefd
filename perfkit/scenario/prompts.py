"""The key `workload.prompts` of a scenario: what a language model is asked over OpenAI's API, and how long its answers are."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

import pydantic
from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from perfkit.scenario.section import Count, OneOrMoreTexts, Section, Text
from perfkit.scenario.sequences import GeometricLength, UniformLength

_MOST_TOKENS = 10_000_000
_DEFAULT_PROMPT = "Explain in a few paragraphs how a lighthouse works, and how ships found their way before there was one."
_FORMS = "expected a number of tokens, or a law: uniform with the smallest and the largest number, geometric with the mean, or lognormal with the median"


class LognormalTokens(Section):
    """The logarithm of the number is normally distributed, as that of real answers nearly is."""

    lognormal: Annotated[float, Field(ge=1, le=_MOST_TOKENS, allow_inf_nan=False)]
    """The median: half of the numbers are below it."""
    sigma: Annotated[float, Field(gt=0, le=5, allow_inf_nan=False)] = 0.5
    """The standard deviation of the logarithm: with 0.5, two thirds of the numbers are within a factor of 1.65 of the median."""
    max: Annotated[Count, Field(le=_MOST_TOKENS)] = 32_768
    """Larger numbers become this one."""


def _known_law(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        is_known = 1 <= value <= _MOST_TOKENS
    elif isinstance(value, Mapping):
        is_known = (len(value) == 1 and {*value} <= {"uniform", "geometric"}) or "lognormal" in value
    else:
        is_known = isinstance(value, Section)
    if not is_known:
        raise PydanticCustomError("variant", _FORMS + "; found {found}", {"found": repr(value)})
    return value


def _law(data: object) -> str:
    keys = data if isinstance(data, Mapping) else getattr(data, "model_fields_set", ())
    return next((key for key in ("uniform", "geometric", "lognormal") if key in keys), "fixed")


Tokens: TypeAlias = Annotated[
    Annotated[Count, Tag("fixed")]
    | Annotated[UniformLength, Tag("uniform")]
    | Annotated[GeometricLength, Tag("geometric")]
    | Annotated[LognormalTokens, Tag("lognormal")],
    Discriminator(_law),
    BeforeValidator(_known_law),
]


class Prompts(Section):
    """What a model is asked, for `target.api: openai`. Without `values` and `file` every request has one built-in prompt."""

    values: Annotated[tuple[Text, ...], Field(min_length=1), OneOrMoreTexts] | None = None
    """The prompts themselves."""
    file: Text | None = None
    """In place of values: a file of JSON lines with `prompt` or `messages`, and if wanted `max_tokens`; or one in ShareGPT's form, of which
    the first question of each conversation is taken. Relative to the scenario's folder."""
    order: Literal["in_order", "random"] = "in_order"
    """In turn, or chosen at random by the workload's seed."""
    max_tokens: Tokens | None = 64
    """The most tokens of an answer: a number, `{uniform: [50, 200]}`, `{geometric: 100}` or `{lognormal: 200, sigma: 0.8}`, by the
    workload's seed; a prompt's own number goes first. Null leaves it to the server."""
    extra: dict[Text, Any] = Field(default_factory=dict)
    """Further members of each request, such as `{temperature: 0, ignore_eos: true}`."""

    @pydantic.model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.values is not None and self.file is not None:
            raise ValueError("values and file exclude each other: remove one")
        return self

    @pydantic.field_validator("extra")
    @classmethod
    def _can_be_sent(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if odd := next((name for name, value in extra.items() if not _is_json(value)), None):
            raise ValueError(f"'{odd}' is no JSON value: expected numbers, texts, true, false, null, or lists and mappings of them")
        return extra

    @property
    def texts(self) -> tuple[str, ...]:
        """The prompts that the scenario itself has."""
        return self.values or (_DEFAULT_PROMPT,)

    @property
    def has_law(self) -> bool:
        """Whether the numbers of tokens differ between requests with the same prompt."""
        return not (self.max_tokens is None or isinstance(self.max_tokens, int))


def _is_json(value: object) -> bool:
    unchecked = [value]
    while unchecked:
        one = unchecked.pop()
        if isinstance(one, Mapping):
            if not all(isinstance(key, str) for key in one):
                return False
            unchecked += *one, *one.values()
        elif isinstance(one, list | tuple):
            unchecked += one
        elif isinstance(one, str):
            if any("\ud800" <= character <= "\udfff" for character in one):  # half of a surrogate pair
                return False
        elif one is not None and not (isinstance(one, bool | int) or (isinstance(one, float) and math.isfinite(one))):
            return False
    return True
