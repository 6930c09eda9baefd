"""`perfkit plan` from outside: what it prints, what it writes, and its exit codes."""

import json
import pathlib

import pytest

from perfkit.cli.main import main
from tests.queue_results import Writer

DAY = ("--profile", str(pathlib.Path(__file__).parents[2] / "scenarios" / "day.csv"))
PRICED = (*DAY, "--cold-start", "90s", "--price", "$2.5/h")
BOUGHT = (*PRICED, "--purchase", "$30,000", "--electricity", "$0.25/kWh")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A result for a plan, one of another model, one of a single rate, and one of closed loops."""
    write = Writer(tmp_path_factory.mktemp("results"))
    rates = (20, 35, 50, 60, 70, 110)
    return {
        "good": write(rates, overloaded_from=100),
        "other": write(rates, model="n", overloaded_from=100),
        "single": write((50,)),
        "closed": write((), concurrencies=(1, 2), throughputs=(100, 180)),
    }


@pytest.fixture
def plan(results, tmp_path, capsys, monkeypatch):
    """Run the command on results by name; returns exit code, stdout and stderr. Of a day few requests are simulated."""
    monkeypatch.setattr("perfkit.plan.fleet_simulation.requests_at_most", lambda _: 20_000)

    def run(*arguments, names=("good",), slo="p99<300ms", demand="1000/s"):
        paths = [str(results[name]) for name in names]
        code: object
        try:
            code = main(
                ["plan", *paths, "--slo", slo, *(["--demand", demand] if demand else []), "--out", str(tmp_path / "out"), *arguments]
            )
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


def test_the_summary_is_printed_and_the_folder_written(plan, tmp_path):
    code, stdout, stderr = plan("--price", "$2.50/h", "--redundancy", "1", "--at", "55/s")
    assert code == 0, stderr
    assert "replicas of m serve 1,000/s within p99 < 300 ms" in stdout
    assert "m at 55.0/s: p99 " in stdout
    assert "(half-width " in stdout
    assert "perfkit: notes: The server was started once" in stderr
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == {"plan.html", "plan.md", "plan.json", "tables", "plots"}


def test_a_seed_below_zero_is_refused(plan):
    code, _, stderr = plan("--seed", "-1")
    assert code == 2
    assert "expected a whole number from 0 to 4,294,967,295, found '-1'" in stderr


def test_the_risk_takes_its_options_and_the_shares_from_a_file(plan, tmp_path):
    shares = tmp_path / "shares.csv"
    shares.write_text("replica,requests\na,600\nb,500\nc,500\nd,400\n")
    options = ("--demand-uncertainty", "20%", "--outage-cost", "$500/h", "--peak-hours", "4h", "--availability", "99%")
    code, stdout, stderr = plan("--price", "$2.50/h", "--shares", str(shares), *options, "--quiet")
    assert code == 0, stderr
    assert "At a peak demand of 833/s to 1,200/s (90 % interval) and with requests split as measured, " in stdout
    question = json.loads((tmp_path / "out" / "plan.json").read_text())["question"]["risk"]
    assert question["splitting"]["shares"] == [1.2, 1.0, 1.0, 0.8]
    assert (question["demand_uncertainty"], question["peak_hours_per_day"], question["availability"]) == (0.2, 4.0, 0.99)
    assert (question["outage_cost"]["per_hour"], question["outage_cost"]["currency"]) == (500.0, "$")


def test_the_demand_over_the_day_gives_the_peak_the_mean_and_the_lowest_cost(plan, tmp_path):
    """The mean of the profile is (8·0.2 + 6·2 + 10·0.4)/24."""
    (tmp_path / "day.csv").write_text("hour,demand_per_s\n0,0.2\n8,2\n14,0.4\n")
    bought = (
        *BOUGHT[2:],
        "--lifetime",
        "36mo",
        "--power",
        "0.7kW",
        "--reserved-price",
        "$1.60/h",
        "--allowed-missed-time",
        "0.5%",
        "--quiet",
    )
    code, stdout, stderr = plan("--profile", str(tmp_path / "day.csv"), *bought, demand=None)
    assert code == 0, stderr
    document = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert document["question"]["demands_per_s"] == [2]
    assert document["question"]["average_demand_per_s"] == pytest.approx(17.6 / 24)
    assert document["question"]["day"]["purchase"] == {"price": 30_000, "lifetime_h": 26_280, "electricity_per_kwh": 0.25, "power_w": 700}
    assert [way["name"] for way in document["schedule"]["ways"]] == ["fixed", "schedule by hour", "autoscaled"]
    assert len(document["schedule"]["hours"]) == 24
    assert "Over the day, with a cold start of 90.0 s (given): fixed, " in stdout
    assert "Of the ways that miss the SLO in at most 0.50 % of the time, the lowest cost is " in stdout
    assert min(offer["rank"] for offer in document["schedule"]["offers"] if offer["rank"]) == 1
    assert (tmp_path / "out" / "plots" / "day.svg").exists()
    assert (tmp_path / "out" / "tables" / "schedule_costs.csv").exists()


def test_an_order_is_due_the_lead_time_before_the_peaks_exceed_the_replicas(plan, tmp_path):
    peaks = tmp_path / "peaks.csv"
    peaks.write_text("date,peak_per_s\n" + "".join(f"2026-03-{day:02d},{700 * 1.01**day}\n" for day in range(1, 32)))
    code, stdout, stderr = plan("--peaks", str(peaks), "--replicas", "17", "--lead-time", "2w", "--quiet")
    document = json.loads((tmp_path / "out" / "plan.json").read_text())
    said = document["exhaustion"]
    assert code == 0, stderr
    assert (said["lead_time_days"], said["order_by_days"]) == (14, said["p10_days"] - 14)
    assert "Order more replicas " in stdout
    assert "P10 less the lead time of 14 days" in stdout
    assert document["forecast"]["back_test"]["models"]["exponential"]["weight"] == pytest.approx(1)
    assert "fits" not in document["forecast"]
    assert "paths_per_s" not in document["forecast"]


def test_json_is_the_only_output_on_stdout(plan, tmp_path):
    code, stdout, stderr = plan("--format", "json", "--quiet")
    assert (code, stderr) == (0, "status: complete (1 configuration; all limits are kept; exit code 0)\n")
    assert json.loads(stdout) == json.loads((tmp_path / "out" / "plan.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "options", "code", "message"),
    [
        ((), {"demand": "1000"}, 2, "--demand '1000': the unit is missing; write 1000/s or 60000/m"),
        ((), {"demand": "0/s"}, 2, "--demand '0/s': a rate must be above zero, found '0/s'"),
        ((), {"slo": "p99<300"}, 2, "--slo 'p99<300': expected a duration"),
        (("--price", "2.50"), {}, 2, "with its unit, such as 2.50/h"),
        (("--price", "$2/h", "--price", "$3/h"), {}, 2, "the general price is 2 $/h and 3 $/h; give one"),
        (
            ("--constraint", "memory<3GiB"),
            {},
            2,
            "--constraint 'memory<3GiB': 'memory' is not a known figure; known are gpu_memory, price, ",
        ),
        (("--constraint", "price<20/h"), {}, 2, "add --price, such as --price 2.50/h"),
        (("--headroom", "0.3"), {}, 2, "--headroom '0.3': the unit is missing; write 30%"),
        (("--zones", "1"), {}, 2, "--zones 1: no replica survives the loss of the only zone"),
        (("--replicas", "0"), {}, 2, "--replicas 0"),
        (
            ("--replicas", "5"),
            {},
            2,
            "--replicas: the date on which they are exhausted comes from a forecast; add --peaks with daily peaks",
        ),
        (("--redundancy", "-1"), {}, 2, "expected a whole number"),
        (("--average-demand", "2000/s"), {}, 2, "--average-demand 2000/s: the average is above the peak demand, 1000/s"),
        (("--shares", "/nothing.csv"), {}, 2, "--shares /nothing.csv: cannot be read"),
        (("--shares", "1,x"), {}, 2, "--shares '1,x': expected the relative loads of the replicas"),
        (("--balancing", "sticky"), {}, 2, "invalid choice: 'sticky'"),
        (("--lead-time", "6w"), {}, 2, "--lead-time: the date of an order comes from a forecast; add --peaks with daily peaks"),
        (("--peaks", "/nothing.csv"), {}, 2, "--peaks /nothing.csv: cannot be read"),
        (
            (),
            {"demand": None},
            2,
            "--demand is missing: give the peak demand, such as --demand 1000/s, or the demand over the day, --profile day.csv",
        ),
        (
            ("--cold-start", "90s"),
            {},
            2,
            "--cold-start needs --profile, the demand over the day; a constant demand is a file with the lines",
        ),
        (("--profile", "/nothing.csv"), {}, 2, "--profile /nothing.csv: cannot be read"),
        (
            (*DAY, "--average-demand", "2000/s"),
            {"demand": None},
            2,
            "--average-demand 2000/s: the average is above the peak demand, 1000/s",
        ),
        (
            DAY,
            {"demand": "900/s"},
            2,
            "--demand 900/s is not the peak of --profile, 1000/s: leave it out, or multiply the profile's column demand_per_s by 0.9",
        ),
        (
            DAY,
            {"demand": "1500/s"},
            2,
            "--demand 1500/s is not the peak of --profile, 1000/s: leave it out, or multiply the profile's column demand_per_s by 1.5",
        ),
        (DAY, {"demand": None}, 2, "--profile needs --cold-start"),
        ((*DAY, "--cold-start", "90"), {}, 2, "--cold-start '90': expected a duration"),
        (
            (*PRICED, "--allowed-missed-time", "0.5"),
            {},
            2,
            "--allowed-missed-time '0.5': expected a share of the time below 100%, with its unit",
        ),
        (("--allowed-missed-time", "1%"), {}, 2, "--allowed-missed-time needs --profile"),
        ((*DAY, "--cold-start", "3h"), {}, 2, "--cold-start '3h': at most 60m"),
        ((*DAY, "--reserved-price", "$1.6/h"), {}, 2, "give the on-demand price too, such as --price '$2.50/h'"),
        ((*PRICED, "--reserved-price", "1.6 EUR/h"), {}, 2, "the currency differs from that of --price, $; use one currency"),
        ((*PRICED, "--spot-price", "$0.9/h"), {}, 2, "--spot-price needs --spot-interruptions 5%/h: the risk of an interruption"),
        ((*PRICED, "--spot-interruptions", "5%/h"), {}, 2, "--spot-interruptions needs --spot-price '$0.90/h'"),
        ((*PRICED, "--spot-price", "$0.9/h", "--spot-interruptions", "5%"), {}, 2, "lost in an hour, with its unit, such as 5%/h"),
        ((*PRICED, "--purchase", "$30,000"), {}, 2, "buying against renting needs --lifetime 3y and --electricity '$0.25/kWh' too"),
        ((*PRICED, "--power", "700W"), {}, 2, "--power is the power of a bought replica, and needs --purchase"),
        ((*BOUGHT, "--lifetime", "3"), {}, 2, "--lifetime '3': expected years or months up to 30 years, such as 3y or 36mo"),
        ((*BOUGHT, "--lifetime", "3y", "--power", "700"), {}, 2, "--power '700': expected a power with its unit"),
        (
            (*BOUGHT, "--lifetime", "3y"),
            {},
            2,
            "--purchase: the results hold no power of GPUs; give the power of a replica, such as --power 700W",
        ),
        ((), {"names": ("single",)}, 2, "one point gives no capacity"),
        ((), {"names": ("closed",)}, 2, "these results hold only closed loops, which have no arrival rate"),
        ((), {"names": ("good", "other")}, 2, "give each a label, such as a="),
        ((), {"slo": "p99<1ms"}, 3, "The SLO is never met"),
    ],
)
def test_inconsistent_inputs_are_refused_with_a_sentence(plan, tmp_path, arguments, options, code, message):
    actual, _, stderr = plan(*arguments, **options)
    assert actual == code, stderr
    assert message in stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_alone(plan, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    code, _, stderr = plan()
    assert code == 2
    assert "is not a plan; give another folder" in stderr
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["mine"]


def test_the_status_line_agrees_with_a_note_on_the_error_rate(plan, tmp_path):
    """No request failed, but some thousands cannot show an error rate below 0.001 %."""
    code, _, stderr = plan(slo="p99<300ms,error_rate<0.001%")
    assert "Whether the error rate keeps its limit, 0.001 %, cannot be told" in stderr
    assert stderr.endswith("status: complete (1 configuration; whether all limits are kept cannot be told; exit code 3)\n")
    assert code == 3
    assert (tmp_path / "out" / "plan.json").exists()


def test_on_a_terminal_of_80_columns_the_answer_is_wrapped_and_each_way_over_the_day_has_a_line(plan, tmp_path, monkeypatch):
    (tmp_path / "day.csv").write_text("hour,demand_per_s\n0,0.2\n8,2\n14,0.4\n")
    options = ("--profile", str(tmp_path / "day.csv"), *PRICED[2:])
    monkeypatch.setenv("COLUMNS", "80")
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    _, stdout, stderr = plan(*options, demand=None)
    answer = stdout.splitlines()[:-1]  # the last line is the path of the folder
    assert max(map(len, [*answer, *stderr.splitlines()])) <= 80
    ways = [line.strip().partition(",")[0] for line in answer if line.startswith("  - ")]
    assert ways == ["- fixed", "- schedule by hour", "- autoscaled"]


@pytest.mark.parametrize(("constraint", "code"), [("replicas<=1000", 0), ("replicas<=2", 1), ("energy<3J", 3)])
def test_the_exit_code_says_whether_the_constraints_hold(plan, constraint, code):
    found, stdout, stderr = plan("--constraint", constraint, "--quiet")
    limits = {0: "all limits are kept", 1: "a limit is violated", 3: "whether all limits are kept cannot be told"}[code]
    assert (found, stderr) == (code, f"status: complete (1 configuration; {limits}; exit code {code})\n")
    assert stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "which only results of language models have"),
        (("--average-demand", "100/s"), "give it in the unit of --demand"),
        (DAY, "--profile and --peaks are in inferences"),
    ],
)
def test_a_demand_in_tokens_that_cannot_be_planned_is_refused(plan, options, told):
    code, _, stderr = plan(*options, demand="5000tok/s")
    assert code == 2
    assert told in " ".join(stderr.split())
