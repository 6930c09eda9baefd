"""The requests of a scenario's workload: from the recorded trace, from input data, or generated; and what their answers must hold."""

import dataclasses
from typing import Any

from perfkit.errors import ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import InferRequest, ModelConfig, ModelMetadata
from perfkit.scenario.file import LoadedScenario
from perfkit.trace.recorded import Indices
from perfkit.workload.expectation import Expectation
from perfkit.workload.generated import Checkpoint
from perfkit.workload.requests import make_requests, resolve_batch_size


@dataclasses.dataclass(frozen=True)
class WorkloadRequests:
    """The requests of a workload, in the order in which they are used in turn."""

    requests: tuple[InferRequest, ...]
    expectation: Expectation
    batch_size: float
    """The inferences of a request; of a replay, the mean."""
    indices: Indices | None = None
    """The index of the request for each arrival of a replay; None for requests that are used in turn."""
    stream_lengths: tuple[int, ...] = ()
    """The number of steps of each stream of `workload.data`, in the order of the requests; they apply to sequences."""
    note: str = ""
    """How they were made, in a sentence, where that is not as the scenario says; otherwise empty."""


def make_workload_requests(
    loaded: LoadedScenario, metadata: ModelMetadata, config: ModelConfig, budget: MemoryBudget, checkpoint: Checkpoint
) -> WorkloadRequests:
    """Makes the requests; raises ScenarioError, and ModelMismatchError if they do not fit the model."""
    scenario, folder, trace = loaded.scenario, loaded.folder, loaded.trace
    workload, max_batch_size = scenario.workload, config.max_batch_size
    model = (workload, metadata, max_batch_size, scenario.target.version, folder)
    size = resolve_batch_size(workload.batch_size, metadata.name, max_batch_size)
    if scenario.target.spoken_api.takes_prompts:
        from perfkit.scenario.prompts import Prompts
        from perfkit.workload.prompts import make_prompt_requests, make_requests_of_lengths

        prompts = workload.prompts or Prompts()
        means: dict[str, Any] = {"seed": workload.seed, "budget": budget, "checkpoint": checkpoint}
        if trace is not None and trace.has_contents:
            raise ScenarioError(f"load.replay.trace: it holds requests of v2, and target.api is {scenario.target.api}")
        if trace is not None and trace.has_lengths:
            prompted = make_requests_of_lengths(trace, prompts, metadata.name, **means)
        else:
            prompted = make_prompt_requests(prompts, metadata.name, folder, endpoint=scenario.target.spoken_endpoint, **means)
        expectation = Expectation.of(prompted.requests, metadata, scenario.check, None, folder, budget)
        return WorkloadRequests(prompted.requests, expectation, 1.0, indices=prompted.indices, note=prompted.note)
    if trace is not None and trace.has_contents:
        if workload.data is not None:
            raise ScenarioError("workload.data: the trace of load.replay holds its requests' own tensors or shapes: remove workload.data")
        from perfkit.trace.payloads import payload_folder
        from perfkit.workload.traced_requests import make_traced_requests

        traced = make_traced_requests(trace, payload_folder(loaded.trace_file), *model, budget=budget, checkpoint=checkpoint)
        expectation = Expectation.of(traced.requests, metadata, scenario.check, size, folder, budget)
        return WorkloadRequests(traced.requests, expectation, traced.mean_batch_size(max_batch_size), indices=traced.indices)
    if workload.data is not None:
        from perfkit.workload.data_requests import make_data_requests

        made = make_data_requests(*model, required_inputs=config.required_inputs, budget=budget, checkpoint=checkpoint)
        expectation = Expectation.of(made.requests, metadata, scenario.check, size, folder, budget, made.expected)
        return WorkloadRequests(made.requests, expectation, float(workload.batch_size), stream_lengths=made.stream_lengths)
    requests = make_requests(*model, budget=budget, checkpoint=checkpoint)
    return WorkloadRequests(requests, Expectation.of(requests, metadata, scenario.check, size, folder, budget), float(workload.batch_size))
