"""`perfkit gate accept`, and gates that read its file: exit codes, and what every output says."""

import json

import pytest
import yaml

from perfkit.cli.main import main
from tests.cli.test_gate import begin, gate, scenario  # noqa: F401 - a fixture
from tests.cli.test_gate_stored import gate as gate_stored
from tests.cli.test_gate_stored import place, stored, write_candidate  # noqa: F401 - fixtures
from tests.simulated_pairs import make_pairs

FILE = "perfkit-accepted.yaml"
WHY = ("--reason", "the new tokenizer costs that much", "--expires", "2999-01-31")


@pytest.fixture
def regressed(scenario, tmp_path, monkeypatch):  # noqa: F811
    """The folder of a gate with a regression."""
    monkeypatch.chdir(tmp_path)
    begin(scenario, tmp_path / "first", make_pairs(12, 1.15))
    assert gate(scenario, tmp_path / "first", "--quiet") == 1
    return tmp_path / "first"


def again(scenario, tmp_path, factor, *options):  # noqa: F811
    """The exit code and the outputs of another gate."""
    begin(scenario, tmp_path / "second", make_pairs(12, factor, seed=3), accepted=options[-1] if options else FILE)
    code = gate(scenario, tmp_path / "second", "--quiet", "--markdown", "a.md", "--junit", "a.xml", "--html", "a.html", *options)
    return code, [(tmp_path / name).read_text() for name in ("a.md", "a.xml", "a.html")]


def test_an_accepted_regression_passes_and_every_output_says_so(regressed, scenario, tmp_path, capsys):  # noqa: F811
    capsys.readouterr()
    assert main(["gate", "accept", str(regressed), *WHY]) == 0
    said = capsys.readouterr().out
    assert "scenario: throughput, http, saturation: up to 1" in said
    assert said.endswith(f"{FILE}: 2 written; commit it\n")
    entries = yaml.safe_load((tmp_path / FILE).read_text())["accepted"]
    assert [(one["metric"], one["load_point"]) for one in entries] == [
        ("p50", "http, 70 % of the capacity"),
        ("throughput", "http, saturation"),
    ]
    assert all(15 < float(one["slowdown"].rstrip("%")) < 17 for one in entries)
    code, outputs = again(scenario, tmp_path, 1.15)
    assert code == 0
    for output in (capsys.readouterr().out, *outputs):
        assert "accepted until 2999-01-31" in " ".join(output.split())
        assert "the new tokenizer costs that much" in " ".join(output.split())


def test_more_than_the_accepted_slowdown_regresses(regressed, scenario, tmp_path):  # noqa: F811
    assert (
        main(["gate", "accept", str(regressed / "verdict.json"), *WHY, "--metric", "p50", "--metric", "throughput", "--file", "my.yaml"])
        == 0
    )
    assert again(scenario, tmp_path, 1.25, "--accepted", "my.yaml")[0] == 1


def test_the_file_beside_the_scenario_is_read_from_elsewhere(regressed, scenario, tmp_path, monkeypatch):  # noqa: F811
    assert main(["gate", "accept", str(regressed), *WHY]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    begin(scenario, tmp_path / "second", make_pairs(12, 1.15, seed=3), accepted=tmp_path / FILE)
    assert gate(scenario, tmp_path / "second", "--quiet") == 0


def accept(folder, *options):
    return main(["gate", "accept", str(folder), *WHY, *options])


def test_it_is_written_to_the_file_that_the_gate_reads_first(scenario, tmp_path, monkeypatch, capsys):  # noqa: F811
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    beside, empty = scenario.parent / FILE, "schema: perfkit.accepted/1\naccepted: []\n"
    beside.write_text(empty)
    (here / FILE).write_text(empty)  # a gate does not read this one, as there is one beside the scenario
    begin(scenario, tmp_path / "first", make_pairs(12, 1.15))
    assert gate(scenario, tmp_path / "first", "--quiet") == 1
    capsys.readouterr()
    assert accept(tmp_path / "first") == 0
    assert capsys.readouterr().out.endswith(f"{beside}: 2 written; commit it\n")
    assert (here / FILE).read_text() == empty
    begin(scenario, tmp_path / "second", make_pairs(12, 1.15, seed=3), accepted=beside)
    assert gate(scenario, tmp_path / "second", "--quiet") == 0

    beside.unlink()
    assert accept(tmp_path / "first") == 2
    assert f"the gate read {beside}, which is not here" in capsys.readouterr().err
    assert not beside.exists()
    assert accept(tmp_path / "first", "--file", "other.yaml") == 0
    assert len(yaml.safe_load((here / "other.yaml").read_text())["accepted"]) == 2


def test_it_is_written_to_the_file_that_the_gate_was_given(scenario, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ours.yaml").write_text("schema: perfkit.accepted/1\n")
    begin(scenario, tmp_path / "first", make_pairs(12, 1.15))
    assert gate(scenario, tmp_path / "first", "--quiet", "--accepted", "ours.yaml") == 1
    assert accept(tmp_path / "first") == 0
    assert len(yaml.safe_load((tmp_path / "ours.yaml").read_text())["accepted"]) == 2
    assert not (tmp_path / FILE).exists()


def test_an_expired_acceptance_is_told_and_the_regression_counts(regressed, scenario, tmp_path):  # noqa: F811
    assert main(["gate", "accept", str(regressed), *WHY]) == 0
    file = tmp_path / FILE
    lines = [line for line in file.read_text().splitlines() if not line.startswith("  accepted:")]
    file.write_text("\n".join(lines).replace("expires: 2999-01-31", "expires: 2026-01-01\n  accepted: 2025-12-31"))
    code, outputs = again(scenario, tmp_path, 1.15)
    assert code == 1
    for output in outputs:
        assert "expired on 2026-01-01: the regression counts again" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--reason", "a", "--expires", "2020-01-01"), "--expires 2020-01-01: give a day after today"),
        (("--reason", " ", "--expires", "2999-01-01"), "--reason: say why the change is accepted"),
        (("--reason", "a", "--expires", "2999-01-01", "--metric", "p99"), "--metric p99: the verdict does not gate it"),
    ],
)
def test_what_cannot_be_accepted_is_a_usage_error_and_writes_nothing(regressed, tmp_path, capsys, options, message):
    assert main(["gate", "accept", str(regressed), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / FILE).exists()


def test_a_wrong_date_and_a_malformed_file_are_usage_errors(regressed, scenario, tmp_path, capsys):  # noqa: F811
    with pytest.raises(SystemExit) as ended:
        main(["gate", "accept", str(regressed), "--reason", "a", "--expires", "soon"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("perfkit gate accept: argument --expires: expected a date such as 2027-01-31, found 'soon'")
    (tmp_path / FILE).write_text("schema: perfkit.accepted/1\naccepted: 3\n")
    assert gate(scenario, tmp_path / "third") == 2
    assert f"{FILE}:2: accepted: expected a list of accepted changes" in capsys.readouterr().err
    assert not (tmp_path / "third.partial").exists()


def test_a_stored_gate_reads_the_file_too(place, capsys):  # noqa: F811
    write_candidate(place, 1.2)
    assert gate_stored("--out", "verdict") == 1
    assert main(["gate", "accept", "verdict", *WHY]) == 0
    capsys.readouterr()
    assert gate_stored("--format", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert {one["accepted"]["expires"] for one in shown["comparisons"] if one["gated"] and one["metric"] != "error_rate"} == {"2999-01-31"}
    assert any("is accepted until 2999-01-31: the new tokenizer costs that much." in note for note in shown["notes"])
    write_candidate(place, 1.5)
    assert gate_stored("--quiet") == 1
