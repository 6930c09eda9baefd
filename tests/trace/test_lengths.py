"""Public traces of language models: their instants, and the lengths of their prompts and answers."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.trace.reader import read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,API log\n"
MOONCAKE = '{"timestamp": 0, "input_length": 6955, "output_length": 52, "hash_ids": [46]}\n{"timestamp": 3052, "input_length": 6472, "output_length": 26}\n'


@pytest.mark.parametrize(
    ("name", "text", "instants_ns", "lengths"),
    [
        ("a.csv", AZURE, [0, 4_314_579_000], ["374,44", "396,109"]),
        ("b.csv", BURSTGPT, [0, 40_000_000_000], ["472,18", "1087,230"]),
        ("c.jsonl", MOONCAKE, [0, 3_052_000_000], ["6955,52", "6472,26"]),
    ],
)
def test_the_columns_of_public_traces_are_known(tmp_path, name, text, instants_ns, lengths):
    (tmp_path / name).write_text(text)
    trace = read_trace(tmp_path / name)
    assert trace.instants_ns.tolist() == instants_ns
    assert [trace.contents[index].lengths for index in trace.content_indices] == lengths
    assert (trace.has_lengths, trace.has_contents) == (True, False)


@pytest.mark.parametrize("number", ["-1", "x", "100000000"])
def test_a_length_that_cannot_be_is_said_with_its_line(tmp_path, number):
    (tmp_path / "a.csv").write_text(AZURE.replace("396", number))
    with pytest.raises(ScenarioError, match=r"a\.csv:3: "):
        read_trace(tmp_path / "a.csv")


def test_a_trace_without_lengths_has_none(tmp_path):
    (tmp_path / "a.csv").write_text("timestamp_s\n1\n2\n")
    assert not read_trace(tmp_path / "a.csv").has_lengths
