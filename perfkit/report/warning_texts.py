"""Every measurement warning: what it means, why it comes, and its remedy.

The terminal and the report show the keys; `perfkit help warnings`, `perfkit help CODE` and the documentation show all of it.
"""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class WarningText:
    """The texts of one warning, in Markdown."""

    meaning: str
    """What was seen, without a full stop: it stands in a table."""
    cause: str
    """Sentences: why that happens, and what it does to the figures."""
    remedy: str
    """Sentences: what to do."""
    keys: str = ""
    """The scenario keys and `perfkit run` options of the remedy; empty if there are none."""


INVALID_POINT: Mapping[str, WarningText] = {
    "generator_bound": WarningText(
        "a worker used more than 85 % of its core",
        "The load generator had no time left to send and receive, so that requests waited for it. The server may be faster than the figures.",
        "Let more processes send the load, if CPUs are free for them: `measure.workers: auto` chooses their number from the machine's calibration (`perfkit calibrate`), and "
        "`measure.cpus` gives them CPUs. Or measure a lower concurrency or rate, from a machine of its own, or from several (`fleet`).",
        "measure.workers, measure.cpus",
    ),
    "throttled": WarningText(
        "a CPU quota stopped the generator for more than 1 % of the window",
        "A container or a control group may use its CPUs only for a part of each period. In the rest of it perfkit stands still, in the middle of requests.",
        "Remove the quota, or give the container whole CPUs in place of a quota (`docker run --cpuset-cpus`, not `--cpus`).",
    ),
    "suspended": WarningText(
        "the generator's machine was suspended",
        "The machine slept, or its host paused it. The time is missing in every figure.",
        "Measure again, and keep the machine from sleeping.",
    ),
    "generator_stopped": WarningText(
        "the generator stood still, and that moved a figure beyond its interval",
        "Other processes, the machine's host, swapping, a signal or a debugger kept a worker from running. Answers that came meanwhile were noted late, as if the "
        "server had been slow. The warning names the figure that was moved most, with both values.",
        "End what else runs on the machine (`busy_machine` names it, `perfkit doctor` looks for it), give the workers CPUs of their own, or measure longer, so "
        "that one stop weighs less.",
        "measure.cpus, measure.duration (run URL: --duration)",
    ),
    "behind_schedule": WarningText(
        "more than 1 % of an open loop's arrivals were not sent",
        "The generator could not send as fast as the schedule asked, so the load was lower than stated.",
        "Lower the rate, or let more processes send (`measure.workers`) if CPUs are free for them. If the server is overloaded, the requests in flight pile up and take the generator's time: "
        "`load.open.max_in_flight` limits them, and counts what is above as dropped.",
        "measure.workers, load.open.rate (run URL: --rate), load.open.max_in_flight",
    ),
    "late_starts": WarningText(
        "more than 2 % of an open loop's requests were sent late, or late requests moved a figure",
        "Late is more than 1 ms, and more than 5 % of the median response time, after the scheduled time. The generator was busy with other requests, or other "
        "processes had its CPU. The response time contains the delay, which is the generator's and not the server's.",
        "End other programs first, if the warning or `perfkit doctor` names any. Otherwise lower the rate, or give the generator more CPUs and let more processes send. "
        "More workers on CPUs that are not free, such as those that the server needs, only make it worse.",
        "measure.workers, measure.cpus, load.open.rate (run URL: --rate)",
    ),
    "worker_lost": WarningText(
        "a worker died: its share of the load is missing, from its last checkpoint on",
        "A process that sends load ended in the middle of the load point: it was killed, for example for want of memory, or its machine of a fleet was lost.",
        "See the reason in the warning and in the kernel's log (`dmesg` names processes that were killed for memory), then measure again.",
    ),
    "file_limit": WarningText(
        "connections could not be opened at the limit of open files",
        "Each connection is an open file. A worker held 90 % of those that it may open, or could not open more; requests then waited for that, not for the server.",
        "Raise the limit in the shell that starts perfkit (`ulimit -n 65536`), or share the connections among more workers.",
        "ulimit -n, measure.workers",
    ),
}
"""Those that make a load point invalid, because its figures are those of the load generator, not of the target."""

VALID_POINT: Mapping[str, WarningText] = {
    "busy_machine": WarningText(
        "other processes kept the generator's machine busy",
        "Programs besides perfkit and its target used the CPUs, which the warning names. Long times, late starts and stops may be due to them.",
        "End them, give the load generator CPUs of its own, or measure from another machine.",
        "measure.cpus; perfkit doctor",
    ),
    "shared_cpus": WarningText(
        "server and generator compete for the same CPUs",
        "The server runs on this machine, and perfkit cannot tell that they have separate CPUs: there are too few, the scenario gives both the same, or something else "
        "started the server. Each may slow the other, so that the figures are not those of a server with a machine of its own.",
        "Measure from another machine, or give both separate CPUs: the load generator by `measure.cpus`, a server that perfkit starts by `server.cpus`, one that you "
        "start by `taskset`. `server.cpus` has no effect on a server at a URL, which perfkit did not start; there the warning stays after `taskset`, because perfkit "
        "does not see it.",
        "measure.cpus, server.cpus",
    ),
    "resumed_elsewhere": WarningText(
        "the run was resumed on another machine, with another perfkit or another server; the warning says what differs",
        "`--resume` continued a run in another environment, so its load points are not comparable with each other.",
        "Measure anew without `--resume` if that matters.",
    ),
    "generator_paused": WarningText(
        "the generator stood still for 10 ms or more, without moving a figure",
        "As with `generator_stopped`, but no percentile, mean, throughput or error rate changed beyond its interval. The longest times may still be the generator's.",
        "Nothing, unless the maximum matters. Then give the workers CPUs of their own.",
        "measure.cpus",
    ),
    "burst": WarningText(
        "the generator stalled, then sent the overdue requests all at once",
        "A stall of 50 ms or more let arrivals pile up; the server then got them in one burst, which the schedule did not ask for.",
        "Let more processes send, and give them CPUs of their own.",
        "measure.workers, measure.cpus",
    ),
    "steal": WarningText(
        "the machine's host (hypervisor) gave CPU time to other guests",
        "More than 1 % of this virtual machine's CPU time went to others. Delays may be the host's.",
        "Measure on a machine that is not shared, or at another time; repeat and compare.",
    ),
    "littles_law": WarningText(
        "throughput × mean service time differs from the concurrency: the window is short, or the generator paused",
        "In a closed loop the requests in flight are throughput × (service time + think time). Where that is off by more than 5 %, the window is short "
        "compared with the service time, so that requests at its ends weigh much, or the generator paused between requests.",
        "Measure longer.",
        "measure.duration (run URL: --duration)",
    ),
    "few_samples": WarningText(
        "too few samples for a percentile",
        "The percentile is shown, but rests on fewer samples than it needs, and the warning says how many that are. Its interval is wide, or open above. Requests that "
        "follow one another are alike, so a percentile can need more than 1/(1 − q) of them.",
        "Measure longer, or more repetitions, which are pooled.",
        "measure.duration (run URL: --duration), measure.repetitions",
    ),
    "few_gaps": WarningText(
        "too few idle gaps for a narrow interval of their penalty",
        "A load point of `load.idle` had fewer than 20 gaps, or too few for any interval.",
        "Measure as long as the warning says.",
        "measure.duration (run URL: --duration), measure.repetitions",
    ),
    "no_samples": WarningText(
        "no request succeeded",
        "All requests failed, timed out or were not answered before the end. `failed_requests` says what the server answered.",
        "Mend what the server says. If it is only slow, measure longer, or raise the time that a request may take.",
        "measure.duration (run URL: --duration), target.timeout",
    ),
    "censored": WarningText(
        "a percentile falls among unanswered requests, so it is a lower bound",
        "Requests that timed out, or were unanswered at the end, count with the age that they had reached. The true percentile is higher.",
        "Give requests more time, at the end of the window too (`measure.drain`), or lower the load.",
        "target.timeout, measure.drain",
    ),
    "clamped": WarningText(
        "times above one hour count as one hour",
        "The histograms end at one hour.",
        "Lower `target.timeout`, unless requests are meant to take that long.",
    ),
    "stall": WarningText(
        "the target answered nothing for half a second or longer, although requests were waiting; the seconds are named",
        "The server, its network or a proxy stood still: a garbage collection, a model that is loaded, a lost connection, a packet that was sent again. "
        "The stall is part of the figures, as it is for users.",
        "Look at the server's log and at the telemetry at these seconds (the report's charts over time).",
    ),
    "error_burst": WarningText(
        "most failures lie within a few seconds, which are named",
        "The server failed for a while and then recovered: it restarted, was scaled, or its queue was full.",
        "Look at the server's log at these seconds; `failed_requests` quotes its messages.",
    ),
    "not_steady": WarningText(
        "the target's times were still drifting",
        "The mean time or the throughput rose or fell through the window: caches fill, a GPU grows warm, the server scales, or the warm-up had not ended. "
        "Another window would give other figures.",
        "Measure longer, or set a longer warm-up.",
        "measure.warmup, measure.duration (run URL: --duration)",
    ),
    "overloaded": WarningText(
        "the backlog grew to the end of the window: the rate is above the capacity",
        "More requests came than the server answered. Response times grow as long as the window lasts, so they describe the window's length and not the server.",
        "Measure lower rates; `load.search` finds the highest that keeps a limit. The throughput of the point is the server's capacity at this load.",
        "load.open.rate (run URL: --rate)",
    ),
    "hopeless": WarningText(
        "a probe of a search ended early, because the target was overloaded",
        "The backlog was so large that the rest of the probe could not change the answer. The search goes on below that rate.",
        "Nothing: this saves time.",
    ),
    "dropped": WarningText(
        "arrivals above `max_in_flight` were dropped",
        "So many requests were in flight that further arrivals were not sent. They count as errors, and no time contains them.",
        "Raise the limit if the server is to have such a queue, or lower the rate.",
        "load.open.max_in_flight",
    ),
    "connections_limited": WarningText(
        "more concurrent requests than connections: some waited",
        "A closed loop asks for more requests in flight than `target.max_connections` × requests on a connection allow.",
        "Raise the limit, or lower the concurrency.",
        "target.max_connections",
    ),
    "imbalanced": WarningText(
        "of several addresses, one got all requests, or the shares differ by more than chance",
        "A connection carries its requests to one address for as long as it is open, so few connections reach few replicas, over gRPC often a single one. With "
        "`balance: least_in_flight`, slower replicas get less.",
        "Use all addresses (`target.resolve: all`), choose how they share the load (`target.balance`), or open connections anew from time to time (`target.connections`).",
        "target.balance, target.resolve, target.connections",
    ),
    "machine_unlike": WarningText(
        "one machine of a fleet saw the target's median more than 20 %, and more than chance, away from the others",
        "Its way to the target is longer or shorter, or the machine itself is slower or busy. The figures of all machines together mix both.",
        "Compare the machines in the report, and `perfkit doctor` on the one that is named; leave it out, or accept that users' ways differ too.",
    ),
    "clock_bound": WarningText(
        "a machine's clock is not known as precisely as the start delay: arrivals of different machines may be apart by that",
        "Machines of a fleet follow one schedule by their own clocks, which are compared over the network. Times of single requests are not affected.",
        "Synchronise the clocks, or use machines that are nearer to the one that drives them.",
        "chrony or NTP on the machines, or a shorter way to them",
    ),
    "slower_replica": WarningText(
        "the median of one address is more than 5 % above that of another, and so are their 95 % intervals",
        "Replicas differ: in hardware, in their neighbours, in how warm they are, or in how far away they are.",
        "Compare the addresses in the report; measure one alone with its own URL.",
    ),
    "failed_requests": WarningText(
        "requests failed; the warning quotes the most frequent messages",
        "Failed requests are not in the throughput and have a distribution of their own; those that timed out count as lower bounds.",
        "Mend what the messages say. `target.timeout` decides when a request counts as timed out.",
    ),
    "invalid_output": WarningText(
        "checked answers were wrong",
        "A sample of the answers is compared with the model's metadata and the scenario's expected values. The warning says how many of all may be wrong.",
        "See which output differs in the report. `check.share: 1` checks all answers; `check.tolerance` says how far floats may differ.",
        "check.share",
    ),
    "probe_retried": WarningText(
        "the target failed a request before the load began; the request was repeated",
        "The server was asked for its metadata or for a first answer, and failed in passing.",
        "Nothing, if it happens once. Otherwise see the message, and whether the server was ready.",
    ),
    "no_metadata": WarningText(
        "the server does not describe the model: the requests are made from the scenario alone",
        "The server has no metadata endpoint, or its metadata name no inputs. perfkit cannot check shapes and datatypes, and answers only against the scenario.",
        "State each input with its shape and datatype.",
        "workload.inputs",
    ),
    "no_sequences": WarningText(
        "the server does not announce the sequence extension, and may ignore the ids and flags of sequences",
        "The scenario has `sequences`. A server that ignores them answers each request for itself.",
        "Check the server's version and the model's sequence batching.",
    ),
    "json_tensors": WarningText(
        "the server refuses binary tensors: both sides spend more CPU time on JSON",
        "The server does not support the binary data extension, so numbers are sent as text.",
        "Nothing, if clients of this server do the same. Otherwise measure over gRPC, or use a server with the extension.",
    ),
    "server_statistics": WarningText(
        "the server's statistics could not be read",
        "The server has no statistics endpoint, or it failed. The point has no queue and compute times; its other figures are complete.",
        "See the reason in the warning. Servers without the v2 statistics extension may have a metrics page: `target.metrics_url`.",
    ),
    "server_counters_reset": WarningText(
        "the server's counters were reset within the window",
        "The server restarted, reloaded the model, or replicas with separate counters answer in turn. The point has no server figures.",
        "If the server restarted, see why in its log, and measure again.",
    ),
    "server_replicas": WarningText(
        "several servers answer at the address: no server figures",
        "Counters fell while nothing was sent, because a load balancer asks replicas in turn, each with counters of its own.",
        "Measure one replica by its own address to see its queue and compute times.",
    ),
    "server_versions": WarningText(
        "several versions of the model answered",
        "The server's figures cover all versions together.",
        "Choose one with `target.version`.",
        "target.version",
    ),
    "server_counts_errors": WarningText(
        "the server counts errors of single requests as successes",
        "Triton's Python backend does so. The server's mean times include failed requests.",
        "Compare the server's times only with those of points without errors.",
    ),
    "server_counts_differ": WarningText(
        "the server's number of requests differs from perfkit's",
        "Other clients used the model, requests of before were still under way, a cache or a proxy answered, or some requests went to other replicas. The server's "
        "figures are not of this load alone.",
        "Keep other clients away, and measure again.",
    ),
    "cache_hits": WarningText(
        "the server's response cache answered",
        "Requests repeat: perfkit sends `workload.variants` different ones in turn. An answer from the cache does not run the model.",
        "Raise the number of variants, or switch the server's cache off, unless the cache is what you measure.",
        "workload.variants",
    ),
    "metrics_missing": WarningText(
        "a metrics page had no sample in the window",
        "The page could not be read, or it has none of the named metrics.",
        "Open the URL by hand, and compare the names.",
        "metrics.names",
    ),
    "metrics_reset": WarningText(
        "counters of a metrics page were reset within the window",
        "Its server restarted.",
        "See why in the server's log, and measure again.",
    ),
    "telemetry_lost": WarningText(
        "the sampler process was lost",
        "The process that samples the server, GPUs and this machine ended or did not start. Requests are not affected; the load point lacks what it would have sampled.",
        "See the reason in the warning, and measure again if the telemetry matters.",
    ),
    "tcp_retransmits": WarningText(
        "packets may have been lost; a lost packet delays its request by 200 ms or more",
        "This machine sent TCP segments again, and some requests took long enough for that to be the reason.",
        "Check the network between generator and server; measure on the server's machine or network to compare.",
    ),
    "gpu_idle": WarningText(
        "the GPU was idle while requests waited",
        "The server has a GPU, which was busy for less than 5 % of the window, although requests were in flight nearly all the time and each took half a second or more. "
        "Then the server does something else, mostly on the CPU: it prepares its kernels for each batch size that it has not had before, loads or converts data, or computes a model "
        "there that was meant for the GPU. The point stays valid, because these are the server's figures, but those of another window can be many times higher.",
        "Have every batch size prepared before the window: a longer warm-up, or CUDA graphs captured when the model is loaded (the bundled server's `server.onnx.graphs`, Triton's "
        "`model_warmup`). Or limit the batch sizes (`server.onnx.max_batch`, Triton's `preferred_batch_size`). If it stays, see in the server's log and in the report's environment whether the "
        "model is on the GPU at all.",
        "measure.warmup, server.onnx",
    ),
    "gpu_throttled": WarningText(
        "a GPU lowered its clocks",
        "It was too hot, at its power limit, or slowed by the power supply. Later windows may be slower than the first ones.",
        "Cool it, or lock its clocks at a level that it can keep (`nvidia-smi --lock-gpu-clocks`), so that figures are comparable.",
    ),
    "gpu_shared": WarningText(
        "other processes computed on the GPU",
        "They take its time and memory, which the warning states; the figures are not those of the server alone.",
        "End them, or give the server a GPU of its own.",
    ),
    "gpu_ecc": WarningText(
        "a GPU had uncorrectable memory errors",
        "Answers may be wrong, and the driver may end the server's work.",
        "Do not trust the figures; have the GPU examined.",
    ),
    "gpu_lost": WarningText(
        "the driver lost the GPU",
        "Its means cover only the time before that.",
        "See the kernel's log (`dmesg`, lines with Xid), and restart the machine.",
    ),
    "report_missing": WarningText(
        "the report was not drawn",
        "Drawing failed or was stopped. The result's files are complete.",
        "`perfkit report FOLDER` draws it again, and says what is wrong.",
    ),
}
"""Those that leave it valid."""

WARNINGS: Mapping[str, WarningText] = {**INVALID_POINT, **VALID_POINT}
"""All of them, by code."""


def explained(code: str) -> str:
    """A warning in Markdown, under a heading: what it means, its cause, and its remedy."""
    text = WARNINGS[code]
    keys = f" Keys and options: {text.keys}." if text.keys else ""
    meaning = f"{text.meaning[0].upper()}{text.meaning[1:]}."
    invalid = " The load point is not valid." if code in INVALID_POINT else ""
    return f"### `{code}`\n\n{meaning}{invalid}\n\n**Cause.** {text.cause}\n\n**Remedy.** {text.remedy}{keys}\n"
