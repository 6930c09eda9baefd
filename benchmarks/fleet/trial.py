"""A fleet of three machines, each a network namespace: what it must get right, and what happens when parts of it fail.

    python -m benchmarks.fleet.trial [--seconds 10] [--out reports/fleet-trial.md]

The target notes the instant, the sender and the number of each request. Every request of the load carries the number of its place in one schedule, so
that none can be missing, sent twice, sent by the wrong machine or sent at the wrong time without being seen. The same schedule is also sent by
one worker. Then one link has 5 ms of delay each way and one machine's clock is 100 ms ahead; then a worker, a machine, a link, the driver and the driver's link are
lost under load. It needs root. The exit code is 1 if anything differs from what is required.
"""

import dataclasses
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.fleet.fleet_run import Arrivals, FleetRun, Running, Schedule, TrialFleet
from benchmarks.fleet.namespaces import NamespacesUnavailableError
from benchmarks.report import Report, describe_machine, program_options, yes_no

RATE_PER_S = 300
LINK_DELAY_NS, CLOCK_SHIFT_NS, MAX_BOUND_NS = 5_000_000, 100_000_000, 1_000_000
_DISTURBANCES = frozenset({"generator_bound", "late_starts", "generator_stopped", "behind_schedule"})
"""Warnings against a load point whose cause is a busy machine, which runs all hosts here."""


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """Something that is required, what was seen, and whether that is the same."""

    case: str
    required: str
    seen: str
    holds: bool


def check_totals(case: str, run: FleetRun) -> Iterator[Check]:
    """The figures of the whole are those of its machines together."""
    point = run.run.point
    whole, parts = point["response_time_ns"], [machine["times_ns"] for machine in point["machines"]]
    counts = [part["count"] for part in parts]
    total = sum(part["mean"] * part["count"] for part in parts)
    holds = (
        sum(counts) == whole["count"]
        and abs(total - whole["mean"] * whole["count"]) <= 1e-9 * total
        and min(part["min"] for part in parts) == whole["min"]
        and max(part["max"] for part in parts) == whole["max"]
    )
    seen = f"{' + '.join(f'{count:,}' for count in counts)} = {whole['count']:,}"
    yield Check(case, "the histogram has the times of all machines: count, sum, minimum, maximum", seen, holds)


def check_arrivals(case: str, run: FleetRun, fleet: TrialFleet, schedule: Schedule, *, lost: Sequence[str] = ()) -> Iterator[Check]:
    """The target has got each request once, from the machine whose share it belongs to, and all of those of machines that were not lost."""
    arrivals, result, names = _of_machines(run.arrivals, fleet), run.run.result, _by_ip(fleet)
    wanted = len(schedule.at_ns)
    seen = f"{len(arrivals.numbers):,} of {wanted:,} came, {len(set(arrivals.numbers)):,} different ones"
    yield Check(case, "no request is sent twice", seen, arrivals.are_each_once)
    if result is None:
        return
    point = result["points"][0]
    order, workers = [machine["name"] for machine in point["machines"]], sum(machine["workers"] for machine in point["machines"])
    missing = 0
    foreign = sum(order[number % workers % len(order)] != names[sender] for number, sender in _pairs(arrivals))
    for place, name in enumerate(order):
        own = {number for number in range(wanted) if number % workers % len(order) == place}
        missing += 0 if name in lost else len(own - {number for number, sender in _pairs(arrivals) if names[sender] == name})
    share = "each request comes from the machine whose share it is" + (
        "; those that were not lost send all of theirs" if lost else ", and all come"
    )
    yield Check(case, share, f"{foreign} of a wrong machine, {missing} missing", not foreign and not missing)
    sent = sum(machine["requests"] for machine in point["machines"])
    yield Check(
        case,
        "the counts of the machines add up to the load point's",
        f"{sent:,} of {point['requests']['sent']:,}",
        sent == point["requests"]["sent"],
    )


def check_starts(case: str, run: FleetRun, fleet: TrialFleet, schedule: Schedule) -> Iterator[Check]:
    """All machines follow the same schedule: at the target, the lateness of their requests differs by the delay of a link."""
    # not the median, which a busy computer moves
    tenths = [
        statistics.quantiles(run.arrivals.of(host.ip).lateness_ns(schedule), n=10)[0] - fleet.delay_ns(name)
        for name, host in fleet.machines.items()
    ]
    start_delay_ns = run.run.point["start_delay_ns"]["p99"]
    spread = max(tenths) - min(tenths)
    seen = f"{spread / 1e6:.2f} ms apart, without the links' delays"
    yield Check(
        case, "the machines' requests reach the target on one schedule, to 1 ms (first tenth of the lateness)", seen, spread < MAX_BOUND_NS
    )
    for machine in run.run.point["machines"]:
        name, shift, bound = machine["name"], fleet.shift_ns(machine["name"]), machine["clock_bound_ns"]
        error = abs(machine["clock_offset_ns"] - shift)
        clock = f"{name}: offset {machine['clock_offset_ns'] / 1e6:.3f} ms (true: {shift / 1e6:g} ms), bound {bound / 1e6:.3f} ms"
        if fleet.delay_ns(name):
            says_so = ("clock_bound" in _codes(run)) == (bound > start_delay_ns)
            clock += f", start delay {start_delay_ns / 1e6:.3f} ms at p99"
            required = (
                "behind a link of 5 ms the bound holds and is more than 1 ms, and `clock_bound` says if it is more than the start delay"
            )
            yield Check(case, required, clock, error <= bound and bound > MAX_BOUND_NS and says_so)
        else:
            yield Check(case, "the bound holds, and is less than 1 ms", clock, error <= bound < MAX_BOUND_NS)


def check_end(case: str, run: FleetRun, exit_code: int, machine_codes: Mapping[str, int]) -> Iterator[Check]:
    """The exit codes, and that no process is left."""
    seen = ", ".join(f"{name} {code}" for name, code in {"driver": run.run.exit_code, **run.machine_exit_codes}.items())
    required = ", ".join(f"{name} {code}" for name, code in {"driver": exit_code, **machine_codes}.items())
    yield Check(
        case, f"exit codes: {required}", seen, (run.run.exit_code, dict(run.machine_exit_codes)) == (exit_code, dict(machine_codes))
    )
    left = "; ".join(f"{name}: {', '.join(lines)}" for name, lines in run.left.items())
    yield Check(case, "no process is left on any machine", left or "none", not run.left)


def undisturbed_case(fleet: TrialFleet, seconds: float, case: str, workers: int) -> Iterator[Check]:
    """A schedule sent by the fleet and by one worker."""
    schedule = Schedule.poisson(RATE_PER_S, seconds)
    scenario = fleet.scenario(fleet.replay(schedule), workers=workers)
    run = fleet.run(scenario)
    yield from check_totals(case, run)
    yield from check_arrivals(case, run, fleet, schedule)
    yield from check_starts(case, run, fleet, schedule)
    disturbances = _codes(run) & _DISTURBANCES
    if disturbances:
        case += f" (not valid on this busy computer: {', '.join(sorted(disturbances))})"
    yield from check_end(case, run, 5 if disturbances else 0, dict.fromkeys(fleet.machines, 0))


def one_worker_case(fleet: TrialFleet, seconds: float) -> Iterator[Check]:
    """Arrivals that perfkit draws: the fleet sends those that one worker sends."""
    case = "as one worker"
    scenario = fleet.scenario({"open": {"rate": RATE_PER_S, "arrivals": "poisson"}}, warmup="0s", duration=f"{seconds:g}s")
    alone, of_alone = fleet.run_alone(scenario)
    together = fleet.run(scenario)
    counts = alone.point["requests"]["scheduled"], together.run.point["requests"]["scheduled"]
    yield Check(
        case, "the fleet schedules as many Poisson arrivals as one worker", f"{counts[1]:,} and {counts[0]:,}", counts[0] == counts[1]
    )
    first, second = sorted(of_alone.at_ns)[-counts[0] :], sorted(_of_machines(together.arrivals, fleet).at_ns)
    yield Check(case, "as many reach the target", f"{len(second):,} and {len(first):,}", len(first) == len(second) == counts[0])
    differences = [two - one for one, two in zip(first, second, strict=False)]
    middle = statistics.median(differences)
    apart = sorted(abs(one - middle) / 1e6 for one in differences)
    median, p90 = apart[len(apart) // 2], apart[len(apart) * 9 // 10]
    yield Check(
        case, "at the same instants of the schedule: half of them to 1 ms", f"half to {median:.2f} ms, 90 % to {p90:.2f} ms", median < 1
    )


def failures(seconds: float) -> Iterator[tuple[str, Callable[[Running], None], Mapping[str, Any]]]:
    """What is done under load, by name, and what must come of it."""
    at = round(RATE_PER_S * seconds * 0.7)
    lost_machine = {"exit_code": 5, "lost": ["c"]}
    yield "a worker is killed", lambda one: one.after(at).kill_worker("c"), {**lost_machine, "codes": {"a": 0, "b": 0, "c": 0}}
    yield "a machine is killed", lambda one: one.after(at).kill_machine("c"), {**lost_machine, "codes": {"a": 0, "b": 0, "c": -9}}
    yield "a link is cut", lambda one: one.after(at).cut("c"), {**lost_machine, "codes": {"a": 0, "b": 0, "c": 6}}
    yield "the driver is killed", lambda one: one.after(at).kill_driver(), {"exit_code": -9, "lost": [], "codes": dict.fromkeys("abc", 6)}
    yield (
        "the driver's link is cut",
        lambda one: one.after(at).cut("driver"),
        {"exit_code": 5, "lost": list("abc"), "codes": dict.fromkeys("abc", 6)},
    )


def failure_case(
    fleet: TrialFleet, seconds: float, case: str, disturb: Callable[[Running], None], required: Mapping[str, Any]
) -> Iterator[Check]:
    """A fleet of which a part is lost under load."""
    schedule = Schedule.poisson(RATE_PER_S, seconds)
    run = fleet.run(fleet.scenario(fleet.replay(schedule)), disturb)
    yield from check_end(case, run, required["exit_code"], required["codes"])
    yield from check_arrivals(case, run, fleet, schedule, lost=required["lost"])
    if run.run.result is not None:
        point = run.run.point
        named = sorted(machine["name"] for machine in point["machines"] if machine["lost"])
        yield Check(case, "the result names what was lost, and is not valid", f"{', '.join(named)}; valid: {yes_no(point['valid'])}",
                    named == sorted(required["lost"]) and "worker_lost" in _codes(run) and not point["valid"])  # fmt: skip
        kept = {machine["name"]: machine["requests"] for machine in point["machines"] if machine["lost"]}
        yield Check(case, "what the lost ones had sent counts", ", ".join(f"{name}: {count:,} requests" for name, count in kept.items()),
                    all(kept.values()))  # fmt: skip
    else:
        yield Check(case, "the machines stop within 10 s", f"last request {max(run.last_arrival_s, 0):.1f} s later; kept: {', '.join(run.kept) or 'nothing'}",
                    run.last_arrival_s < 10)  # fmt: skip


def _codes(run: FleetRun) -> set[str]:
    return {warning["code"] for warning in run.run.point["warnings"]}


def _by_ip(fleet: TrialFleet) -> dict[str, str]:
    return {host.ip: name for name, host in fleet.machines.items()}


def _of_machines(arrivals: Arrivals, fleet: TrialFleet) -> Arrivals:
    """Without the request by which the driver tries the target before the load."""
    return arrivals.of(*_by_ip(fleet))


def _pairs(arrivals: Arrivals) -> list[tuple[int, str]]:
    return [(number, sender) for number, sender in zip(arrivals.numbers, arrivals.senders, strict=True) if number is not None]


def checks(seconds: float) -> Iterator[Check]:
    """All of them; raises NamespacesUnavailableError."""
    alike: dict[str, dict[str, Any]] = {name: {} for name in "abc"}
    with TrialFleet(alike) as fleet:
        yield from undisturbed_case(fleet, seconds, "three machines of two workers", 2)
        yield from one_worker_case(fleet, seconds)
    for case, disturb, required in failures(seconds):
        with TrialFleet(alike) as fleet:  # a new one for each: the kernel of a host that was cut off still sends what it could not send
            yield from failure_case(fleet, 3 * seconds if set(required["codes"].values()) == {6} else seconds, case, disturb, required)
    delays_ns = (LINK_DELAY_NS, LINK_DELAY_NS)
    with TrialFleet({"a": {}, "b": {"delays_ns": delays_ns}, "c": {"clock_shift_ns": CLOCK_SHIFT_NS}}) as fleet:
        yield from undisturbed_case(fleet, seconds, "a link of 5 ms to b, c's clock 100 ms ahead", 1)


def main() -> int:
    """Prints the table."""
    options = program_options(__doc__, seconds=10.0)
    page = Report(options.out, "A fleet of three machines")
    page.add(
        f"Three machines, a driver and a target, each in a network namespace of one computer. {RATE_PER_S} Poisson arrivals per second for "
        f"{options.seconds:g} s, three times as long where the driver is lost. {describe_machine()}",
        "",
    )
    page.table("case", "required", "seen", "as required")
    done: list[Check] = []
    try:
        for one in checks(options.seconds):
            done.append(one)
            page.judged_row(one.holds, one.case, one.required, one.seen)
    except NamespacesUnavailableError as error:
        sys.stderr.write(f"fleet trial: {error}\n")
        return 1
    page.add("", f"{sum(one.holds for one in done)} of {len(done)} are as required.")
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
