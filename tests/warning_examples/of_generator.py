"""Warnings about the load generator and its machine."""

from perfkit.figures.resources import BusyProcess, OtherProcesses
from perfkit.load.load_plan import ClosedPlan
from perfkit.load.loop import Ending, StopCause
from perfkit.load.point import LoadPoint, PointPart
from perfkit.machine.readings import BusyShares
from perfkit.measurement.point_measurement import ProbedFacts, make_point_measurement
from perfkit.measurement.point_telemetry import PointObservation
from perfkit.points.judgement import busy_machine_warnings, network_warnings, schedule_warnings
from perfkit.points.measured import NO_RESOURCES
from perfkit.points.point import point
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.window import cut
from perfkit.result.generator import Generator, Tcp
from perfkit.scenario.file import read_document
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.validity import ClosedLoopFigures, OpenLoopFigures, judge_generator
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.workers.point_recording import PointRecording, WorkloadRecording
from tests.points.made_measurement import stopped_measurement
from tests.warning_examples.example import Case, changes, informs

MS, S = 1_000_000, 1_000_000_000


def _judged(*, core=0.2, steal=0.0, throttled=0.0, loop=None, suspended_ns=0) -> Case:
    def warnings(_):
        verdict = judge_generator(core, steal, throttled, loop, suspended_ns=suspended_ns)
        return (*verdict.invalid, *verdict.warnings)

    return warnings


def _open_loop(*, sent=1000, late=0) -> OpenLoopFigures:
    """A thousand scheduled requests, of which some were sent 5 ms late."""
    return OpenLoopFigures(1000, sent, 0, BucketCounts.of([5 * MS] * late + [1000] * (1000 - late)), 10.0 * MS)


def _stopped(length_ms, touched_ms, touched) -> Case:
    """A stop of ten seconds of load, which some requests waited for."""
    stop, touched_ns = (S, S + length_ms * MS, S + length_ms * MS + 5 * MS), [touched_ms * MS] * touched
    return lambda _: point(stopped_measurement(stop, touched_ns=touched_ns, touched=touched)).warnings


def _busy(cpus, *, has_disturbed=True) -> Case:
    others = OtherProcesses(cpus, (BusyProcess("cc1plus", 77, cpus),))
    generator = Generator(cpu_share=0.2, steal_share=0.0, machine_cpu_share=0.5, others=others)
    return lambda _: busy_machine_warnings(generator, 4, has_disturbed=has_disturbed)


def _sent_again(retransmits, longest_ms) -> Case:
    generator = Generator(cpu_share=0.2, steal_share=0.0, tcp=Tcp(segments_sent=10_000, retransmits=retransmits))
    return lambda _: network_warnings(generator, longest_ms * MS)


def _recorded(*, concurrency=4, connections=None, lost=(), ending=None) -> Case:
    """A load point with one request, as the workers recorded it; the scenario allows four connections."""
    recorder = Recorder(window_start_ns=0, window_end_ns=S)
    recorder.add(Reply(Outcome.OK, 0, 10 * MS))
    recording = recorder.finish(S)
    workload = WorkloadRecording(recording, connections or ConnectionCounts(opened=4))
    recorded = PointRecording((workload,), 0, ending or Ending(), BusyShares(), lost=lost)
    load = {"closed": {"concurrency": concurrency}}
    scenario = read_document({"name": "s", "target": {"model": "m", "max_connections": 4}, "load": load}).scenario
    load_point = LoadPoint(0, (PointPart("http", ClosedPlan(concurrency=concurrency, think_time_ns=0)),), 0, 0)
    observed = PointObservation(NO_RESOURCES, (), ())

    def warnings(_):
        made = make_point_measurement(scenario, ProbedFacts(), load_point, 0, recorded, cut(recording, 0, is_open=False), observed, 1, [])
        return (*made.warnings, *made.faults)

    return warnings


EXAMPLES = (
    changes("generator_bound", "its busiest core was 86% busy", _judged(core=0.86), _judged(core=0.85)),
    changes("throttled", "A CPU quota stopped the load generator for 2%", _judged(throttled=0.02), _judged(throttled=0.01)),
    changes("suspended", "was suspended for 3.00 s", _judged(suspended_ns=3 * S), _judged()),
    changes("generator_stopped", "stood still for 800 ms", _stopped(800, 800, 60), _stopped(12, 21, 4)),
    informs("generator_paused", "stood still for 12.0 ms", _stopped(12, 21, 4), _stopped(9, 18, 4)),
    changes(
        "behind_schedule",
        "it sent 98.0% of the 1,000 scheduled requests",
        _judged(loop=_open_loop(sent=980)),
        _judged(loop=_open_loop(sent=990)),
    ),
    changes(
        "late_starts",
        "it sent 50 of the 1,000 requests more than 1.00 ms",
        _judged(loop=_open_loop(late=50)),
        _judged(loop=_open_loop(late=20)),
    ),
    changes(
        "littles_law",
        "gives 3 requests in flight instead of 4",
        _judged(loop=ClosedLoopFigures(4, 100.0, 30.0 * MS)),
        _judged(loop=ClosedLoopFigures(4, 100.0, 39.0 * MS)),
    ),
    informs("steal", "The host took 2.0% of this machine's CPU time", _judged(steal=0.02), _judged(steal=0.01)),
    changes("worker_lost", "worker 2 of 2 was killed.", _recorded(lost=("worker 2 of 2 was killed",)), _recorded()),
    changes(
        "file_limit",
        "3 attempts to open a connection failed",
        _recorded(connections=ConnectionCounts(opened=4, failed_by_file_limit=3)),
        _recorded(),
    ),
    changes("connections_limited", "4 of the 8 concurrent requests waited", _recorded(concurrency=8), _recorded(concurrency=4)),
    changes(
        "hopeless",
        "so the probe ended early: 900 requests waited.",
        _recorded(ending=Ending(S, "900 requests waited", StopCause.OVERLOADED)),
        _recorded(),
    ),
    informs("busy_machine", "cc1plus (pid 77) 120% of a CPU", _busy(1.2), _busy(1.2, has_disturbed=False)),
    changes("tcp_retransmits", "20 of 10,000 TCP segments of this machine were sent again", _sent_again(20, 250), _sent_again(20, 150)),
    changes(
        "dropped",
        "7 of 100 arrivals were dropped",
        lambda _: schedule_warnings(7, 100, None),
        lambda _: schedule_warnings(0, 100, None),
    ),
    changes(
        "burst",
        "stalled for up to 60.0 ms",
        lambda _: schedule_warnings(0, 100, BucketCounts.of([60 * MS])),
        lambda _: schedule_warnings(0, 100, BucketCounts.of([49 * MS])),
    ),
)
