"""The tables of a run's load points."""

import pytest

from perfkit.report.run_tables import failures_table
from perfkit.result.point_parts import Failure


@pytest.fixture
def points(synthetic):
    return synthetic(protocols=("http",), concurrencies=(1, 2)).write().summary


def test_failed_requests_have_a_row_for_each_message_and_status(points):
    failures = (
        Failure(outcome="rejected", status="503", message="Exceeds maximum queue size", cause="queue_full", count=1200),
        Failure(outcome="rejected", status="503", message=None, cause=None, count=7),
        Failure(outcome="unfinished", status=None, message="", cause=None, count=2),
    )
    counts = points[0].requests.model_copy(update={"dropped": 3, "rejected": 1207, "unfinished": 2})
    table = failures_table([points[0].model_copy(update={"requests": counts, "failures": failures}), points[1]])
    assert [row[1:] for row in table.texts] == [
        ["dropped", "–", "3", "–", "–"],
        ["rejected", "503", "1,200", "queue full", "Exceeds maximum queue size"],
        ["rejected", "503", "7", "–", "other messages"],
        ["unfinished", "–", "2", "–", "–"],
    ]
