"""Every warning: how severe it is, what it says, a situation in which it is given, and one in which it is not."""

import pytest

from perfkit.report.warning_texts import warning_texts
from tests.warning_examples import of_generator, of_runs, of_target, of_telemetry

EXAMPLES = (*of_generator.EXAMPLES, *of_target.EXAMPLES, *of_telemetry.EXAMPLES, *of_runs.EXAMPLES)


def test_every_warning_has_its_examples_once():
    assert sorted(one.code for one in EXAMPLES) == sorted(warning_texts())


@pytest.mark.parametrize("example", EXAMPLES, ids=[one.code for one in EXAMPLES])
def test_a_warning_is_given_in_its_situation_alone(example, tmp_path):
    assert warning_texts()[example.code].severity == example.severity
    firing, silent = (tmp_path / name for name in ("fires", "stays-silent"))
    for folder in (firing, silent):
        folder.mkdir()
    (message,) = [one.message for one in example.fires(firing) if one.code == example.code]
    assert example.text in message
    assert example.code not in {one.code for one in example.stays_silent(silent)}
