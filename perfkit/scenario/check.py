"""The `check` part of a scenario: which answers are read, and what they have to say."""

from typing import Annotated

from pydantic import Field

from perfkit.scenario.part import Part, Rate, Share, Text
from perfkit.scenario.workload import FileInput, LiteralInput


class Check(Part):
    """A sample of the answers is read while the load goes on, outside the timed span, and held against the model's metadata."""

    share: Share = 0.01
    """The share of the ok answers that are read, at random; 0 for none."""
    at_most_per_s: Rate = Field(default=20.0, alias="at_most")
    """Reading takes the load generator's time: so many a second, whatever the share."""
    outputs: dict[Text, FileInput | LiteralInput] = Field(default_factory=dict)
    """Expected values; several files are dealt to the requests in turn, as those of an input are."""
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-5
    """A number may differ from an expected one e by `tolerance * max(1, |e|)`; texts and whole numbers by nothing."""
