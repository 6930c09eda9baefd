"""Runs against OpenAI's API: the figures are those that the server has been given, and nothing is shown that it does not report."""

import pytest
import yaml

from perfkit.result.file import read_result
from perfkit.scenario.file import read_document
from tests.openai_server import MODEL, Answers, openai_server

MS = 1_000_000
ONCE = {"warmup": "0s", "requests": 12, "repetitions": 1}
NONE_UNKNOWN = {"per_token_unknown": 0, "per_token_cut_off": 0}


@pytest.fixture
def measured(perfkit, write_scenario):
    """Measures against a server with these answers, with changes to the scenario; the pooled load point, and what the server received."""

    def measure(answers, *, endpoint=None, path="", code=0, **sections):
        with openai_server(answers) as url:
            target = {"url": f"{url}{path}", "model": MODEL, "api": "openai", **({"endpoint": endpoint} if endpoint else {})}
            given = {"load": {"closed": {"concurrency": [2]}}, "measure": ONCE, "telemetry": False, **sections}
            scenario = write_scenario(target={**target, **given.pop("target", {})}, **given)
            return perfkit.measure(scenario, code=code).result["summary"][0]

    return measure


def codes(point):
    return {one["code"] for one in point["warnings"]}


def test_a_stream_of_chat_has_the_times_of_tokens(measured):
    answers = Answers(first_s=0.03, gap_s=0.01)
    point = measured(answers, stream={}, workload={"prompts": {"values": ["Say a."], "max_tokens": 4, "extra": {"temperature": 0}}})
    assert point["requests"]["ok"] == 12
    assert (point["first_token_time_ns"]["count"], point["event_gap_ns"]["count"], point["time_per_output_token_ns"]["count"]) == (
        12,
        36,
        12,
    )
    assert point["first_token_time_ns"]["min"] >= 30 * MS
    assert point["time_per_output_token_ns"]["p50"] > 5 * MS
    assert point["tokens"] == {"input": 84, "output": 48, "reported": 12, "several_in_event": 0, **NONE_UNKNOWN}
    assert point["output_tokens_per_s"] == pytest.approx(4 * point["throughput_per_s"])
    assert point["input_tokens_per_s"] == pytest.approx(7 * point["throughput_per_s"])
    assert point["first_response_time_ns"] is point["response_gap_ns"] is None
    assert "first_token_time" in point["further_intervals"]
    document = answers.documents[-1]
    assert document == {
        "model": MODEL, "messages": [{"role": "user", "content": "Say a."}], "max_tokens": 4, "temperature": 0,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert set(answers.paths) == {"/v1/chat/completions"}


@pytest.mark.parametrize("engine", ["wire", "reference"])
def test_answers_in_one_piece_have_tokens_and_no_times_of_them(measured, engine):
    answers = Answers()
    point = measured(answers, target={"engine": engine})
    assert point["tokens"] == {"input": 84, "output": 48, "reported": 12, "several_in_event": 0, **NONE_UNKNOWN}
    assert point["output_tokens_per_s"] > 0
    assert point["first_token_time_ns"] is point["time_per_output_token_ns"] is point["responses"] is None
    assert not codes(point) & {"tokens_unreported", "first_tokens_unknown"}
    assert "stream" not in answers.documents[-1]


@pytest.mark.parametrize(("endpoint", "stream", "output"), [("completions", {}, 48), ("completions", None, 48), ("embeddings", None, 0)])
def test_other_endpoints(measured, endpoint, stream, output):
    answers = Answers()
    point = measured(answers, endpoint=endpoint, stream=stream, workload={"prompts": {"values": ["Say a."]}})
    assert (point["requests"]["ok"], point["tokens"]["input"], point["tokens"]["output"]) == (12, 84, output)
    assert (point["first_token_time_ns"] is not None) == (stream is not None)
    member = "input" if endpoint == "embeddings" else "prompt"
    assert answers.documents[-1][member] == "Say a."
    assert ("max_tokens" in answers.documents[-1]) == (endpoint != "embeddings")


def test_reasoning_is_the_first_sign_of_an_answer(measured):
    point = measured(Answers(events=({"reasoning_content": "hm"}, "a"), gap_s=0.05), stream={})
    assert point["first_token_time_ns"]["p50"] < 40 * MS < point["event_gap_ns"]["p50"]


@pytest.mark.parametrize(("usage", "tokens"), [("final", 12), ("chunks", 12)])
def test_an_event_may_have_several_tokens(measured, usage, tokens):
    point = measured(Answers(tokens=tokens, usage=usage, gap_s=0.01), stream={})
    assert point["tokens"] == {
        "input": 84,
        "output": 12 * tokens,
        "reported": 12,
        "several_in_event": 12,
        **NONE_UNKNOWN,
        "per_token_unknown": 12 * (usage == "final"),
    }
    assert "several_tokens_in_event" in codes(point)
    if usage == "final":
        assert point["time_per_output_token_ns"] is None, "the tokens of the first event are not known"
        assert "first_tokens_unknown" in codes(point)
    else:  # three in each of the four events, so nine after the first
        assert point["time_per_output_token_ns"]["count"] == 12
        assert 1.5 * MS < point["time_per_output_token_ns"]["p50"] < 0.9 * point["event_gap_ns"]["p50"]


def test_several_workers_count_tokens_together(measured):
    point = measured(Answers(), stream={}, measure={**ONCE, "workers": 2}, load={"closed": {"concurrency": [4]}})
    assert point["tokens"] == {"input": 84, "output": 48, "reported": 12, "several_in_event": 0, **NONE_UNKNOWN}
    assert point["time_per_output_token_ns"]["count"] == 12


@pytest.mark.parametrize("stream", [None, {}])
def test_without_usage_no_figure_of_tokens_is_shown(measured, stream):
    point = measured(Answers(usage="off"), stream=stream)
    assert point["tokens"] == {
        "input": 0,
        "output": 0,
        "reported": 0,
        "several_in_event": 0,
        **NONE_UNKNOWN,
        "per_token_unknown": 0 if stream is None else 12,
    }
    assert point["output_tokens_per_s"] is point["input_tokens_per_s"] is point["time_per_output_token_ns"] is None
    assert (point["first_token_time_ns"] is None) == (stream is None)
    assert "tokens_unreported" in codes(point)


def test_goodput_and_verdict_are_of_all_limits_together(measured):
    slow = Answers(first_s=0.03, gap_s=0.02)
    point = measured(slow, stream={}, slo={"first_token": {"p50": "25ms"}, "per_token": {"p50": "1s"}}, code=1)
    assert (point["goodput_per_s"], point["slo"]["verdict"]) == (0, "violated")
    assert "the first token's p50 is" in point["slo"]["reason"]
    point = measured(slow, stream={}, slo={"first_token": {"p50": "1s"}, "per_token": {"p50": "10ms"}}, code=1)
    assert point["goodput_per_s"] == 0
    assert "the time per output token's p50 is" in point["slo"]["reason"]
    point = measured(slow, stream={}, slo={"first_token": {"p50": "1s"}, "per_token": {"p50": "1s"}})
    assert point["goodput_per_s"] == pytest.approx(point["throughput_per_s"])


def test_goodput_is_withheld_where_the_time_per_token_is_not_known(measured):
    point = measured(Answers(usage="off"), stream={}, slo={"per_token": {"p50": "1s"}}, code=3)
    assert point["goodput_per_s"] is None


def test_an_error_in_the_middle_of_the_first_stream_ends_the_run(perfkit, write_scenario):
    with openai_server(Answers(events=("a", {"error": {"message": "out of memory"}}))) as url:
        scenario = write_scenario(target={"url": url, "model": MODEL, "api": "openai"}, stream={}, load={"closed": {"concurrency": [1]}})
        run = perfkit.run("run", scenario)
    assert run.code == 2
    assert "out of memory" in run.stderr


def test_a_base_path_and_headers_reach_the_server(measured):
    answers = Answers()
    measured(answers, path="/gateway/v1", target={"headers": {"Authorization": "Bearer secret"}})
    assert set(answers.paths) == {"/gateway/v1/chat/completions"}
    assert {one["authorization"] for one in answers.headers} == {"Bearer secret"}


def test_a_url_and_a_model_are_enough(perfkit):
    with openai_server(Answers()) as url:
        run = perfkit.measure(url, "--api", "openai", "-c", "1", "--duration", "300ms", "--slo", "first_token.p50=5s")
        listed = perfkit.run("init", url, "--api", "openai")
        written = perfkit.run("init", url, "--api", "openai", "-m", MODEL)
        missing = perfkit.run("run", url, "--api", "openai", "-m", "other", "--duration", "1s")
    (point,) = run.result["summary"]
    assert (point["first_token_time_ns"]["count"], point["slo"]["verdict"]) == (point["requests"]["ok"], "satisfied")
    assert listed.stdout.endswith(f"perfkit init {url} -m {MODEL} --api openai\n")
    document = yaml.safe_load(written.stdout)
    assert (document["target"]["api"], document["stream"], "values" in document["workload"]["prompts"]) == ("openai", {}, True)
    told = yaml.safe_load(written.stdout.replace("\n# slo:", "\nslo:"))
    assert read_document(told).scenario.slo.good_within_ns == {"first_token_time": 500 * MS}
    assert missing.code == 6
    assert f"it offers {MODEL}" in missing.stderr


def test_a_public_trace_is_replayed_with_its_lengths(measured, tmp_path):
    rows = "".join(f"2023-11-16 18:15:46.{number:03},{number % 3 + 2},{number % 2 + 1}\n" for number in range(0, 300, 10))
    (tmp_path / "azure.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    answers = Answers()
    replay = {"replay": {"trace": str(tmp_path / "azure.csv")}}
    point = measured(answers, stream={}, load=replay, measure={"repetitions": 1})
    assert (point["requests"]["ok"], point["first_token_time_ns"]["count"]) == (30, 30)
    sent = [(len(one["messages"][0]["content"].split()), one["max_tokens"]) for one in answers.documents[-30:]]
    assert sorted(sent) == sorted((number % 3 + 2, number % 2 + 1) for number in range(0, 300, 10))
    assert len({one["messages"][0]["content"] for one in answers.documents[-30:]}) == 30, "equal lengths are no equal prompts"


def test_a_trace_of_v2_requests_is_refused(perfkit, write_scenario, tmp_path):
    (tmp_path / "v2.jsonl").write_text('{"timestamp_ms": 0, "shapes": {"INPUT0": [1, 1]}}\n')
    with openai_server(Answers()) as url:
        target = {"url": url, "model": MODEL, "api": "openai"}
        refused = perfkit.run(
            "run", write_scenario(target=target, measure={"repetitions": 1}, load={"replay": {"trace": str(tmp_path / "v2.jsonl")}})
        )
    assert refused.code == 2
    assert "load.replay.trace: it holds requests of v2, and target.api is openai" in refused.stderr


def test_runs_are_compared_by_the_figures_of_tokens(measured, perfkit, tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder, first_s in zip(folders, (0.0, 0.1), strict=True):
        measured(Answers(first_s=first_s), stream={}, measure={"warmup": "0s", "requests": 30, "repetitions": 1})
        (tmp_path / "out").rename(folder)
    compared = perfkit.run("compare", *folders)
    assert compared.code == 0, compared.stderr
    assert all(name in compared.stdout for name in ("first token p50", "event gap p50", "output tokens"))
    of_history = read_result(folders[1])[0].summary[0].compared()
    assert (of_history["first_token_p50"][1] or 0) > 50 * MS
    assert (of_history["output_tokens"][1] or 0) > 0
