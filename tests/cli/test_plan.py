"""`perfkit plan` from outside: what it prints, what it writes, and its exit codes."""

import json

import pytest

from perfkit.cli.main import main
from tests.queue_results import Writer


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
def plan(results, tmp_path, capsys):
    """Run the command on results by name; returns exit code, stdout and stderr."""

    def run(*arguments, names=("good",), slo="p99<300ms", demand="1000/s"):
        paths = [str(results[name]) for name in names]
        code: object
        try:
            code = main(["plan", *paths, "--slo", slo, "--demand", demand, "--out", str(tmp_path / "out"), *arguments])
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


def test_json_is_the_only_output_on_stdout(plan, tmp_path):
    code, stdout, stderr = plan("--format", "json", "--quiet")
    assert (code, stderr) == (0, "")
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
        (("--redundancy", "-1"), {}, 2, "expected a whole number"),
        (("--average-demand", "2000/s"), {}, 2, "--average-demand 2000/s: the average is above the peak demand, 1000/s"),
        (("--shares", "/nothing.csv"), {}, 2, "--shares /nothing.csv: cannot be read"),
        (("--shares", "1,x"), {}, 2, "--shares '1,x': expected the relative loads of the replicas"),
        (("--balancing", "sticky"), {}, 2, "invalid choice: 'sticky'"),
        (("--peaks", "/nothing.csv"), {}, 2, "--peaks /nothing.csv: cannot be read"),
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


@pytest.mark.parametrize(("constraint", "code"), [("replicas<=1000", 0), ("replicas<=2", 1), ("energy<3J", 3)])
def test_the_exit_code_says_whether_the_constraints_hold(plan, constraint, code):
    assert plan("--constraint", constraint)[0] == code
