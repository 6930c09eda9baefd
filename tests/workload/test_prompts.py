"""Requests of prompts: from values, JSON lines and ShareGPT files, in order or at random, with numbers of tokens by a law."""

import json

import numpy as np
import pytest

from perfkit.errors import ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.prompt import read_prompt
from perfkit.scenario.prompts import Prompts
from perfkit.target.apis import OPENAI
from perfkit.trace.reader import read_trace
from perfkit.workload.prompts import make_prompt_requests, make_requests_of_lengths

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


def made_requests(folder, *, seed=0, endpoint="chat", budget=None, **prompts):
    return make_prompt_requests(
        Prompts.model_validate(prompts),
        "m",
        folder,
        seed=seed,
        endpoint={one.name: one for one in OPENAI.endpoints}[endpoint],
        budget=budget or MemoryBudget(1 << 40),
    )


def made(folder, **how):
    return [read_prompt(request) for request in made_requests(folder, **how).requests]


def written(folder, text):
    (folder / "prompts").write_text(text, encoding="utf-8")
    return "prompts"


def test_values_come_in_turn_with_the_same_number_of_tokens(tmp_path):
    found = made(tmp_path, values=["a", "ü"], max_tokens=3, extra={"temperature": 0})
    assert [(one.text, one.max_tokens, one.extra) for one in found] == [("a", 3, {"temperature": 0}), ("ü", 3, {"temperature": 0})]
    assert [(len(made(tmp_path)), one.max_tokens) for one in made(tmp_path)] == [(1, 64)], "one built-in prompt"
    assert made(tmp_path, max_tokens=None)[0].max_tokens is None


def test_json_lines_have_prompts_or_messages_and_their_own_number_of_tokens(tmp_path):
    lines = [{"prompt": "a"}, {"messages": MESSAGES, "max_tokens": 9}, {"prompt": "b", "max_tokens": 8, "id": 1}]
    found = made(tmp_path, file=written(tmp_path, "\ufeff" + "\n\n".join(map(json.dumps, lines)) + "\n"), max_tokens=5)
    assert [(one.text, one.messages, one.max_tokens) for one in found] == [("a", [], 5), ("", MESSAGES, 9), ("b", [], 8)]


def test_of_a_sharegpt_file_the_first_question_of_each_conversation_is_taken(tmp_path):
    conversations = [
        {"id": "1", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "human", "value": "c"}]},
        {"id": "2", "conversations": [{"from": "gpt", "value": "b"}]},
        {"id": "3", "conversations": []},
        {"id": "4", "conversations": [{"from": "user", "value": "d"}]},
    ]
    assert [one.text for one in made(tmp_path, file=written(tmp_path, f"\n {json.dumps(conversations, indent=1)}"))] == ["a", "d"]


def test_a_random_order_is_that_of_the_seed(tmp_path):
    values = [str(number) for number in range(100)]
    orders = [[one.text for one in made(tmp_path, seed=seed, values=values, order="random")] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(values)
    assert [one.text for one in made(tmp_path, values=values)] == values


@pytest.mark.parametrize(
    ("law", "lowest", "highest", "median"),
    [
        ({"uniform": [50, 200]}, 50, 200, 125),
        ({"lognormal": 200, "sigma": 0.5, "max": 400}, 1, 400, 200),
        ({"geometric": 100}, 1, 10**6, 69),
    ],
)
def test_numbers_of_tokens_follow_their_law_by_the_seed(tmp_path, law, lowest, highest, median):
    first, again, other = (
        [one.max_tokens for one in made(tmp_path, seed=seed, values=["a", "b", "c"], max_tokens=law)] for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len(first) == 1002, "each prompt as often as the others"
    assert lowest <= min(first) < max(first) <= highest
    assert np.median(first) == pytest.approx(median, rel=0.1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has no prompts"),
        ("[]", "it has no prompts"),
        ("{", "expected JSON lines, or a JSON list of conversations"),
        ("[{]", "expected JSON lines, or a JSON list of conversations"),
        ('{"prompt": "a"}\n7\n', "line 2: expected an object"),
        ('[{"conversations": []}, 7]', "entry 2: expected an object"),
        ('{"text": "a"}', "line 1: expected either"),
        ('{"prompt": ""}', "line 1: expected either"),
        ('{"prompt": "a", "messages": []}', "line 1: expected either"),
        ('{"messages": []}', "line 1: expected either"),
        ('{"messages": [{"role": "user"}]}', "line 1: expected either"),
        ('{"prompt": "a", "max_tokens": 0}', "line 1: max_tokens"),
        ('{"prompt": "a", "max_tokens": true}', "line 1: max_tokens"),
        ('{"prompt": "a"}\n{"prompt": "b\\ud800"}', "line 2: it holds half of a surrogate pair"),
        ('[{"conversations": [{"from": "human", "value": "\\udfff"}]}]', "entry 1: it holds half of a surrogate pair"),
        ('{"messages": [{"role": "user", "content": [{"text": "\\ud800"}]}]}', "line 1: it holds half of a surrogate pair"),
        ('{"messages": [{"role": "user", "content": "a", "weight": NaN}]}', "NaN or Infinity, which cannot be sent as JSON"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path, text, words):
    with pytest.raises(ScenarioError, match=r"^workload\.prompts\.file: ") as caught:
        made(tmp_path, file=written(tmp_path, text))
    assert words in str(caught.value)


def test_a_missing_file_and_one_too_large_are_refused(tmp_path):
    with pytest.raises(ScenarioError, match="No such file"):
        made(tmp_path, file="absent.jsonl")
    with pytest.raises(ScenarioError, match=r"workload\.prompts: 1 requests"):
        made(tmp_path, file=written(tmp_path, json.dumps({"prompt": "a" * 100_000})), budget=MemoryBudget(200_000))
    with pytest.raises(ScenarioError, match="JSON lines are read one by one"):
        made(tmp_path, file=written(tmp_path, json.dumps([{"prompt": "a" * 100_000}])), budget=MemoryBudget(200_000))


def test_contents_other_than_text_are_for_chat(tmp_path):
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    file = written(tmp_path, json.dumps({"messages": parts}))
    assert made(tmp_path, file=file)[0].messages == parts
    with pytest.raises(ScenarioError, match="prompt 1 has a content that is no text"):
        made(tmp_path, file=file, endpoint="completions")


def test_few_prompts_that_a_cache_of_prefixes_answers_are_noted(tmp_path):
    assert made_requests(tmp_path).note.startswith("One prompt is sent again and again: a server that caches prefixes")
    assert made_requests(tmp_path, values=["a", "b"], max_tokens={"uniform": [1, 9]}).note.startswith("2 prompts are sent again and again")
    assert not made_requests(tmp_path, values=[str(number) for number in range(100)]).note
    assert not made_requests(tmp_path, endpoint="embeddings").note


LENGTHS = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01,5,44\n2023-01-02,3,0\n2023-01-03,5,44\n2023-01-04,0,7\n2023-01-05,5,44\n"


def of_lengths(folder, **how):
    (folder / "a.csv").write_text(LENGTHS)
    prompts = Prompts.model_validate({"values": ["one two"], "extra": {"ignore_eos": True}})
    return make_requests_of_lengths(read_trace(folder / "a.csv"), prompts, "m", seed=1, **{"budget": MemoryBudget(1 << 40), **how})


def test_of_lengths_prompts_have_as_many_words_and_each_begins_differently(tmp_path):
    requests, indices, note = of_lengths(tmp_path)
    found = [read_prompt(requests[index]) for index in indices]
    assert [(len(one.text.split()), one.max_tokens) for one in found] == [(5, 44), (3, 1), (5, 44), (1, 7), (5, 44)]
    assert found[0].text.split()[1:] == ["one", "two", "one", "two"]
    assert len({one.text.split()[0] for one in found}) == 5, "equal lengths too: a cache of prefixes must not answer"
    assert found[0].extra == {"ignore_eos": True}
    assert "prefixes that the trace's prompts shared are lost" in note
    assert "arrivals repeat" not in note
    with pytest.raises(ScenarioError, match=r"load\.replay\.trace: prompts of 18 words"):
        of_lengths(tmp_path, budget=MemoryBudget(1))


@pytest.mark.parametrize("own", range(6))
def test_of_lengths_arrivals_beyond_the_memory_repeat_prompts_of_the_same_lengths(tmp_path, monkeypatch, own):
    monkeypatch.setattr("perfkit.workload.prompts._OWN_PROMPTS_BYTES", own * 4_200)  # of about 4,096 each
    requests, indices, note = of_lengths(tmp_path)
    found = [read_prompt(requests[index]) for index in indices]
    assert [(len(one.text.split()), one.max_tokens) for one in found] == [(5, 44), (3, 1), (5, 44), (1, 7), (5, 44)]
    assert len({one.text.split()[0] for one in found}) == len(requests) == {0: 3, 1: 3, 2: 3, 3: 4, 4: 4, 5: 5}[own]
    assert note.endswith(f" The last {5 - own} arrivals repeat prompts of earlier ones." if own < 5 else "from them.")
