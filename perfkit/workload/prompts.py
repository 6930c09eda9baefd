"""Requests of `workload.prompts`: one for each prompt, or several where the number of tokens follows a law."""

import itertools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfkit.errors import ScenarioError
from perfkit.input_file import bounded_lines, open_input
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import InferRequest
from perfkit.protocol.prompt import Prompt, prompt_tensor
from perfkit.scenario.prompts import Prompts
from perfkit.scenario.sequences import GeometricLength, UniformLength
from perfkit.target.apis import Endpoint
from perfkit.trace.recorded import Indices, RecordedTrace
from perfkit.workload.generated import Checkpoint
from perfkit.workload.requests import REQUEST_BYTES

_KEY = "workload.prompts.file"
_MEMBERS = ("role", "content")
_LAW_REQUESTS = 1000
"""At least so many numbers of tokens are drawn from a law: its 99th percentile then comes up."""
_OF_LENGTHS = (
    "The trace says how many tokens prompts and answers had, and not what they said: the prompts have about as many words, of the scenario's own "
    "prompts, and max_tokens is the answer's number, which a server may not reach unless workload.prompts.extra has ignore_eos: true. Each begins "
    "with another number: prefixes that the trace's prompts shared are lost, and a server that caches prefixes gains less than it would from them."
)
_OF_FEW = (
    "{} sent again and again: a server that caches prefixes answers faster than it would other prompts. Give more of them in "
    "workload.prompts.file, or switch the cache off."
)
_MANY_PROMPTS = 100
_OWN_PROMPTS_BYTES = 256 << 20
"""The arrivals of a trace have prompts of their own up to so many bytes; later ones take those of earlier arrivals with the same lengths."""
_JSON_FACTOR = 6  # of the memory that parsed JSON takes to its bytes
_PROMPTS, _TOKENS = range(2)  # what a seed is for


class PromptRequests(NamedTuple):
    """Requests of prompts, for `WorkloadRequests`, whose members of these names say more."""

    requests: tuple[InferRequest, ...]
    indices: Indices | None
    note: str


def make_prompt_requests(
    prompts: Prompts,
    model: str,
    folder: pathlib.Path,
    *,
    seed: int,
    endpoint: Endpoint,
    budget: MemoryBudget,
    checkpoint: Checkpoint = lambda: None,
) -> PromptRequests:
    """The requests, which are used in turn; the same for the same seed.

    Raises ScenarioError if the file cannot be read, has no prompts, or some that the endpoint does not take, or exceeds the budget.
    """
    found = [Prompt(text) for text in prompts.texts] if prompts.file is None else _read(folder / prompts.file, budget)
    if not endpoint.takes_parts:
        for number, prompt in enumerate(found, 1):
            if not all(isinstance(message["content"], str) for message in prompt.messages):
                raise ScenarioError(f"{_KEY}: prompt {number} has a content that is no text, which endpoint: {endpoint.name} does not take")
    count = -(-_LAW_REQUESTS // len(found)) * len(found) if prompts.has_law else len(found)
    mean_bytes = sum(len(json.dumps(prompt.messages)) + len(prompt.text) for prompt in found) // len(found) + REQUEST_BYTES
    budget.reserve("workload.prompts", count * mean_bytes, f"{count:,} requests × {mean_bytes:,} bytes", "the number of prompts")
    places: npt.NDArray[np.int64] = np.arange(count) % len(found)
    if prompts.order == "random":
        places = np.random.default_rng([seed, _PROMPTS]).permutation(places)
    requests = []
    for place, tokens in zip(places.tolist(), _max_tokens(prompts, count, seed), strict=True):
        checkpoint()
        prompt = found[place]
        made = Prompt(prompt.text, prompt.messages, prompt.max_tokens or tokens, prompts.extra)
        requests.append(InferRequest(model, (prompt_tensor(made),)))
    is_few = endpoint.writes_text and len(found) < _MANY_PROMPTS
    return PromptRequests(
        tuple(requests), None, _OF_FEW.format(f"{len(found)} prompts are" if len(found) > 1 else "One prompt is") if is_few else ""
    )


def make_requests_of_lengths(
    trace: RecordedTrace, prompts: Prompts, model: str, *, seed: int, budget: MemoryBudget, checkpoint: Checkpoint = lambda: None
) -> PromptRequests:
    """A request for each arrival of the trace: a prompt of as many words as it has tokens, and as many tokens of the answer at most.

    The words are those of the scenario's own prompts; each prompt begins with another number, so that no cache of prefixes answers. Beyond
    256 MiB of prompts, arrivals share the requests of earlier ones with the same lengths. Raises ScenarioError if they exceed the budget.
    """
    lengths = [tuple(map(int, content.lengths.split(","))) for content in trace.contents]
    words = " ".join(prompts.texts).split()
    word_bytes = max(map(len, words)) + 1
    given_words = np.array([given for given, _ in lengths], dtype=np.int64)
    arrivals = trace.content_indices
    sizes = given_words[arrivals] * word_bytes + REQUEST_BYTES
    own = int(np.searchsorted(np.cumsum(sizes), _OWN_PROMPTS_BYTES, side="right"))
    # by content, the last arrival with a prompt of its own; contents that come later only are made once each
    made_of = np.concatenate((arrivals[:own], np.setdiff1d(arrivals[own:], arrivals[:own])))
    place_of = np.zeros(len(lengths), dtype=np.int32)
    place_of[made_of] = np.arange(made_of.size)
    total_words = int(given_words[made_of].sum())
    needed_bytes = total_words * word_bytes + made_of.size * REQUEST_BYTES
    budget.reserve("load.replay.trace", needed_bytes, f"prompts of {total_words:,} words", "the trace")
    numbers = np.random.default_rng([seed, _PROMPTS]).permutation(made_of.size).tolist()
    requests = []
    for number, content in zip(numbers, made_of.tolist(), strict=True):
        checkpoint()
        given, made = lengths[content]
        text = " ".join((str(number), *itertools.islice(itertools.cycle(words), max(given - 1, 0))))
        requests.append(InferRequest(model, (prompt_tensor(Prompt(text, max_tokens=max(made, 1), extra=prompts.extra)),)))
    indices = np.concatenate((np.arange(own, dtype=np.int32), place_of[arrivals[own:]]))
    shared = f" The last {arrivals.size - own:,} arrivals repeat prompts of earlier ones." if own < arrivals.size else ""
    return PromptRequests(tuple(requests), indices, f"{_OF_LENGTHS}{shared}")


def _max_tokens(prompts: Prompts, count: int, seed: int) -> Sequence[int | None]:
    random = np.random.default_rng([seed, _TOKENS])
    match prompts.max_tokens:
        case None | int() as fixed:
            return [fixed] * count
        case UniformLength(uniform=(low, high)):
            drawn = random.integers(low, high, count, endpoint=True)
        case GeometricLength(geometric=mean):
            drawn = random.geometric(1 / mean, count)
        case law:
            numbers = np.rint(random.lognormal(np.log(law.lognormal), law.sigma, count))
            drawn = np.clip(numbers, 1, law.max).astype(np.int64)
    tokens: list[int] = drawn.tolist()
    return tokens


def _read(path: pathlib.Path, budget: MemoryBudget) -> list[Prompt]:
    try:
        with open_input(path) as file:
            if file.peek(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
                size = path.stat().st_size
                budget.reserve(_KEY, _JSON_FACTOR * size, f"{_JSON_FACTOR} × {size:,} bytes", "the file: JSON lines are read one by one")
                entries = enumerate(json.loads(file.read().decode("utf-8-sig")), 1)
                found = list(_prompts(path, "entry", entries))
            else:
                lines = ((number, json.loads(line)) for number, line in enumerate(bounded_lines(file), 1) if line.strip())
                found = list(_prompts(path, "line", lines))
    except OSError as error:
        raise ScenarioError(f"{_KEY}: {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"{_KEY}: {path}: expected JSON lines, or a JSON list of conversations: {error}") from None
    if not found:
        raise ScenarioError(f"{_KEY}: {path}: it has no prompts")
    return found


def _prompts(path: pathlib.Path, what: str, entries: Iterator[tuple[int, object]]) -> Iterator[Prompt]:
    """The prompts of a file's entries; conversations in ShareGPT's form that no question begins are left out."""
    for number, entry in entries:
        where = f"{_KEY}: {path}, {what} {number}"
        if not isinstance(entry, Mapping):
            raise ScenarioError(f"{where}: expected an object with prompt, messages or conversations, found {entry!r:.60}")
        if isinstance(entry.get("conversations"), list):
            yield from (_sendable(prompt, where) for prompt in _question(entry["conversations"]))
            continue
        text, messages = entry.get("prompt"), entry.get("messages")
        is_text = isinstance(text, str) and text and messages is None
        if not is_text and not (text is None and isinstance(messages, list) and messages and all(map(_is_message, messages))):
            raise ScenarioError(
                f'{where}: expected either "prompt": TEXT, or "messages": [{{"role": ROLE, "content": TEXT}}, …], found {entry!r:.100}'
            )
        tokens = entry.get("max_tokens")
        if tokens is not None and not (type(tokens) is int and tokens >= 1):
            raise ScenarioError(f"{where}: max_tokens: expected a number of tokens from 1 on, found {tokens!r:.60}")
        yield _sendable(Prompt(text if isinstance(text, str) else "", messages or [], tokens), where)


def _sendable(prompt: Prompt, where: str) -> Prompt:
    try:
        prompt_tensor(prompt)
    except ValueError:
        raise ScenarioError(f"{where}: it holds half of a surrogate pair, or NaN or Infinity, which cannot be sent as JSON") from None
    return prompt


def _question(turns: list[Any]) -> Iterator[Prompt]:
    """The first turn of a conversation, if it is the user's."""
    first = turns[0] if turns else None
    if isinstance(first, Mapping) and first.get("from") in ("human", "user") and isinstance(first.get("value"), str) and first["value"]:
        yield Prompt(first["value"])


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and all(name in message for name in _MEMBERS)
