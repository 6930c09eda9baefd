"""Demand over a day or a week, from a CSV file."""

import pytest

from perfkit.errors import UsageError
from perfkit.plan.steps import parse_profile

WEEK = "\n".join(["weekday,time,demand_per_s", *(f"{day},00:00,{10 * number + 10}" for number, day in enumerate(
    ("Mon", "tuesday", "Wed", "THU", "Fri", "Sat", "Sun")))])  # fmt: skip


def test_the_demand_of_a_row_holds_until_the_next_one_and_over_midnight():
    profile = parse_profile("hour,demand_per_s\n6,100\n18,40\n", "day.csv")
    hours = [3600 * hour for hour in (0, 5.99, 6, 17.99, 18, 23.99, 24, 30)]
    assert profile.steps().at(hours).tolist() == [40, 40, 100, 100, 40, 40, 40, 100]
    assert not profile.is_weekly
    assert profile.peak_per_s == 100
    assert profile.mean_per_s == pytest.approx(70)
    assert profile.hourly_peaks_per_s() == (40,) * 6 + (100,) * 12 + (40,) * 6


def test_times_are_minutes_and_an_hour_counts_with_its_highest_demand():
    profile = parse_profile("\ufefftime, demand_per_s\n09:30,50\n\n0:00,10\n09:45,20\n", "day.csv")
    assert profile.hourly_peaks_per_s()[8:11] == (10, 50, 20)
    assert profile.steps(divided_by=10).at([9.6 * 3600]).tolist() == [5]


def test_a_week_begins_on_monday():
    profile = parse_profile(WEEK, "week.csv")
    assert profile.is_weekly
    assert profile.steps().at([0, 86_400 * 6.5, 86_400 * 7]).tolist() == [10, 70, 10]
    assert len(profile.hourly_peaks_per_s()) == 168


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "day.csv: expected a header with the columns demand_per_s and either hour (0 to 23) or time (HH:MM), found nothing"),
        ("hour,demand\n1,2\n", "day.csv: expected a header with the columns demand_per_s and either hour"),
        ("hour,time,demand_per_s\n1,01:00,2\n", "and either hour (0 to 23) or time (HH:MM), found hour, time, demand_per_s"),
        ("hour,demand_per_s\n", "day.csv: there is no row below the header; give one for each hour, such as 9,1200"),
        ("hour,demand_per_s\n0,1\n24,1\n", "day.csv:3: expected an hour from 0 to 23, found '24'"),
        ("hour,demand_per_s\n-1,1\n", "day.csv:2: expected an hour from 0 to 23, found '-1'"),
        ("time,demand_per_s\n9:60,1\n", "day.csv:2: expected a time from 00:00 to 23:59, found '9:60'"),
        ("hour,demand_per_s\n0,1\n0,2\n", "day.csv:3: this time appears twice; give one row for each time"),
        ("hour,demand_per_s\n0,many\n", "day.csv:2: expected a number of inferences per second, found 'many'"),
        ("hour,demand_per_s\n0\n", "day.csv:2: expected a number of inferences per second, found ''"),
        ("hour,demand_per_s\n0,-1\n", "day.csv:2: a demand is at least zero, and at most 1e+09/s, found -1"),
        ("hour,demand_per_s\n0,nan\n", "day.csv:2: a demand is at least zero"),
        ("hour,demand_per_s\n0,0\n", "day.csv: every demand is zero; give at least one above zero"),
        ("weekday,hour,demand_per_s\nMo,0,1\n", "day.csv:2: expected a weekday such as Monday or Mon, found 'Mo'"),
        ("weekday,hour,demand_per_s\nMon,0,1\n", "day.csv: Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday has no row"),
        ("hour,demand_per_s\n" + "0,1\n" * 10_081, "10,081 rows are more than the minutes of a week"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_line(text, message):
    with pytest.raises(UsageError) as refused:
        parse_profile(text, "day.csv")
    assert message in str(refused.value)
