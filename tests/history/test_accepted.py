"""The file of accepted changes: its text, and what is said of one that is wrong."""

import datetime

import pytest

from perfkit.errors import UsageError
from perfkit.history.accepted import AcceptedChange, AcceptedChanges, merge_accepted, read_accepted, write_accepted

TEXT = """\
# Known and accepted changes. `perfkit gate accept` writes this file (other comments are not kept); `perfkit gate` and
# `perfkit history` read it. An entry counts through the day of `expires`; remove it when the slowdown is gone.
schema: perfkit.accepted/1
accepted:
- scenario: simple
  metric: error_rate
  load_point: all load points
  slowdown: 0.3%
  reason: 'Retries: see the ticket'
  accepted: 2026-11-23
  expires: 2027-01-01
- scenario: simple
  metric: p99
  load_point: http, saturation
  slowdown: 12.4%
  reason: new tokenizer
  accepted: 2026-11-23
  expires: 2027-01-01
  commit: c0ffee
"""


def change(metric="p99", load_point="http, saturation", slowdown=0.124, **changes):
    known = {
        "scenario": "simple", "metric": metric, "load_point": load_point, "slowdown": slowdown, "reason": "new tokenizer",
        "accepted": datetime.date(2026, 11, 23), "expires": datetime.date(2027, 1, 1), "commit": "c0ffee",
    }  # fmt: skip
    return AcceptedChange.model_validate({**known, **changes})


def test_the_file_is_sorted_text_that_is_read_back(tmp_path):
    path = tmp_path / "folder" / "perfkit-accepted.yaml"
    errors = change("error_rate", "all load points", 0.003, reason="Retries: see the ticket", commit="")
    for order in ([change(), errors], [errors, change()]):
        write_accepted(path, order)
        assert path.read_text() == TEXT
    assert read_accepted(path) == (errors, change())
    assert [one.amount for one in read_accepted(path)] == ["0.3 percentage points", "12.4 %"]


def test_accepting_again_replaces_the_entry_and_keeps_the_others():
    known = (change(), change("p50"))
    assert merge_accepted(known, [change(slowdown=0.2)]) == (change(slowdown=0.2), change("p50"))


def test_an_entry_counts_through_its_last_day():
    for day, counts in ((datetime.date(2027, 1, 1), True), (datetime.date(2027, 1, 2), False)):
        accepted = AcceptedChanges((change(),), day).of("simple")
        assert (accepted.find("p99", "http, saturation") is not None) is counts
        assert (accepted.find_expired("p99", "http, saturation") is None) is counts
        assert accepted.find("p50", "http, saturation") is accepted.find("p99", "http, concurrency 4") is None
        assert AcceptedChanges((change(),), day).of("other").changes == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("perfkit.accepted/1", "perfkit.accepted/2", ":3: schema: this perfkit reads perfkit.accepted/1, found 'perfkit.accepted/2'"),
        ("slowdown: 12.4%", "slowdown: 0.124", ":15: accepted[1].slowdown: expected a slowdown in per cent, such as 12.4%, found '0.124'"),
        ("slowdown: 12.4%", "slowdown: -3%", ":15: accepted[1].slowdown: expected a slowdown in per cent"),
        ("slowdown: 12.4%", "slowdown: 1001%", ":15: accepted[1].slowdown: expected a slowdown in per cent"),
        ("slowdown: 12.4%", "slowdwn: 12.4%", ":15: accepted[1].slowdwn: this key is unknown; did you mean slowdown?"),
        ("  metric: p99\n", "", ":12: accepted[1]: metric is missing: add it, or write the entry again with `perfkit gate accept`"),
        ("expires: 2027-01-01\n  commit", "expires: soon\n  commit", ":18: accepted[1].expires: expected a date such as 2027-01-31"),
        ("expires: 2027-01-01\n  commit", "expires: 2026-11-22\n  commit", ":18: accepted[1].expires: 2026-11-22 is before accepted"),
        ("reason: new tokenizer", "reason: ''", ":16: accepted[1].reason: expected text, found '': put it in quotes"),
        ("commit: c0ffee", "commit: 123456", ":19: accepted[1].commit: expected text, found '123456': put it in quotes"),
        ("accepted:\n-", "accepted:\n- text\n-", ":5: accepted[0]: expected the keys of an accepted change"),
        ("metric: error_rate\n  load_point: all load points", "metric: p99\n  load_point: http, saturation", ":12: accepted[1]: p99 of simple at"),
        ("reason: new", "reason: [new", ":17: not valid YAML"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_a_usage_error_with_line_key_and_fix(tmp_path, old, new, message):
    path = tmp_path / "accepted.yaml"
    assert TEXT.count(old) >= 1
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(UsageError) as caught:
        read_accepted(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "accepted.yaml"
    for content in ("", "just text", "[1, 2]", "\x00"):
        path.write_text(content)
        with pytest.raises(UsageError, match="accepted"):
            read_accepted(path)
    with pytest.raises(UsageError, match="cannot be read as accepted changes: No such file"):
        read_accepted(tmp_path / "none.yaml")
