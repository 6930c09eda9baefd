"""`perfkit fleet up` and `perfkit fleet down`: a Dask cluster on hosts that are reached over SSH, for runs with `--fleet`."""

import argparse
import pathlib
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import whole_number

if TYPE_CHECKING:
    from perfkit.fleet.deployment_messages import DeploymentSpec
    from perfkit.fleet.ssh_hosts import SshHost

_ENDS_WITHIN_S = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands and their options."""
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    up = parts.add_parser("up", help="start a Dask cluster for fleets, in the background, and print how to use it")
    where = up.add_mutually_exclusive_group(required=True)
    where.add_argument("--ssh", type=_hosts, metavar="HOSTS", help="one machine on each of these hosts, such as host1,user@host2")
    where.add_argument("--local", type=whole_number(1, 64), metavar="N", help="N machines on this one: for trying, not for measuring")
    up.add_argument("--port", type=whole_number(0, 65535), help="the port of Dask's scheduler on this machine; default 8786, 0 for any")
    address = "this machine, as the hosts reach it; default: the address that their SSH connections come from"
    up.add_argument("--address", metavar="HOST", help=address)
    up.add_argument("--ssh-config", type=pathlib.Path, metavar="FILE", help="the SSH client's configuration; default: ~/.ssh/config")
    python = "the Python on the hosts that has perfkit[fleet]; default: the path of this machine's"
    up.add_argument("--remote-python", metavar="PATH", help=python)
    down = parts.add_parser("down", help="end the fleet that `perfkit fleet up` has started on this machine")
    up.set_defaults(execute=_up)
    down.set_defaults(execute=_down)


def _hosts(text: str) -> "tuple[SshHost, ...]":
    from perfkit.fleet.ssh_hosts import parse_hosts

    try:
        return parse_hosts(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _spec(options: argparse.Namespace, file: pathlib.Path) -> "DeploymentSpec":
    from perfkit.errors import UsageError
    from perfkit.fleet.deployment_messages import DEFAULT_PORT, DeploymentSpec

    only_ssh = {"--address": options.address, "--ssh-config": options.ssh_config, "--remote-python": options.remote_python}
    if options.local and (given := [name for name, value in only_ssh.items() if value is not None]):
        raise UsageError(f"{given[0]} is for hosts that are reached over SSH: remove it, or give --ssh in place of --local")
    if options.address and options.port == 0:
        raise UsageError("--port 0: with --address the port must be known beforehand: give one")
    if options.ssh_config is not None and not options.ssh_config.is_file():
        raise UsageError(f"--ssh-config {options.ssh_config}: there is no such file")
    return DeploymentSpec(
        state_file=str(file.absolute()),
        hosts=options.ssh or (),
        local=options.local or 0,
        port=DEFAULT_PORT if options.port is None else options.port,
        address=options.address,
        ssh_config=None if options.ssh_config is None else str(options.ssh_config.resolve()),
        remote_python=options.remote_python or sys.executable,
    )


def _up(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import UsageError
    from perfkit.fleet.deployment import WORKER_MEMORY_BYTES, check_packages
    from perfkit.fleet.running_fleet import describe, find_fleet, fleet_file, run_command

    file = fleet_file()
    spec = _spec(options, file)
    check_packages(needs_ssh=bool(spec.hosts))
    fleet, _ = find_fleet(file)
    if fleet is not None:
        raise UsageError(describe(fleet))
    scheduler = _start(spec, file)
    machines = len(spec.hosts) or spec.local
    memory = f"{WORKER_MEMORY_BYTES // 2**20} MiB for itself"
    _say(
        f"{machines} machine{'s' * (machines != 1)}, each a Dask worker with one thread and at most {memory}, not counting what sends the load"
    )
    if spec.hosts:
        _say(f"whoever reaches {scheduler} can run programs on the hosts, since Dask asks for no password: let no others reach it")
    print(run_command(scheduler, spec.local))
    print("perfkit fleet down    # ends it")
    return ExitCode.DONE


def _start(spec: "DeploymentSpec", file: pathlib.Path) -> str:
    """Starts the fleet's process, and returns its scheduler's URL once the fleet is up; an error before that ends the process."""
    from perfkit.errors import MeasurementError
    from perfkit.fleet.deployment_messages import FleetFailed, FleetIsUp
    from perfkit.fleet.running_fleet import open_log
    from perfkit.process.messages import load_message, message_bytes
    from perfkit.process.start_module import start_detached

    with open_log(file) as log:
        process = start_detached("perfkit.fleet.deployment_process", log=log, message=message_bytes(spec))
    assert process.stdin is not None
    assert process.stdout is not None
    is_up = False
    try:
        while True:
            message = load_message(process.stdout)
            if isinstance(message, FleetIsUp):
                is_up = True
                return message.scheduler
            if isinstance(message, FleetFailed):
                raise message.error
            _say(message.text)
    except EOFError:
        raise MeasurementError(f"the fleet's process ended before the fleet was up; {log.name} has its last words") from None
    finally:
        process.stdin.close()
        process.stdout.close()
        if is_up:
            process.returncode = 0  # it stays, and is not waited for
        else:
            process.terminate()
            process.wait()


def _down(_options: argparse.Namespace) -> ExitCode:
    from perfkit.fleet.running_fleet import end_fleet, find_fleet, fleet_file

    fleet, was_killed = find_fleet(fleet_file())
    if fleet is not None:
        end_fleet(fleet, _ENDS_WITHIN_S)
        _say("the fleet is down")
    elif was_killed:
        _say("the fleet's process had been killed; its Dask workers have ended with it, or end when the network tells them")
    else:
        _say("no fleet is up on this machine")
    return ExitCode.DONE


def _say(text: str) -> None:
    print(f"perfkit fleet: {text}", file=sys.stderr, flush=True)
