"""What the live view gets of the load points that have ended."""

from perfkit.errors import MeasurementWarning
from perfkit.measurement.point_run import ended_points
from tests.report.test_answer import closed

LATE, BUSY = (MeasurementWarning(code, "It was so.") for code in ("late_starts", "busy_machine"))


def test_a_load_point_has_the_figures_of_its_newest_repetition_and_the_worst_of_what_all_found():
    first, second, other = closed(
        100.0, 200.0, 300.0, valid=[False, True, True], warnings=[(LATE, BUSY), (BUSY,), ()], error_rates=[0.25, 0.0, 0.0]
    ).summary
    one, two = ended_points([("a", first), ("b", other), ("a", second)])
    assert (one.title, one.repetitions, one.throughput_per_s) == ("a", 2, 200.0)
    assert (one.is_valid, one.codes, one.failed_share) == (False, ("late_starts", "busy_machine"), first.failed_share.estimate)
    assert one.failed_share > 0
    assert (two.title, two.repetitions, two.is_valid, two.codes) == ("b", 1, True, ())
