import pytest

from perfkit.perf_analyzer.command_line import CommandLineError
from perfkit.perf_analyzer.mpiexec import split_commands


def test_model_analyzers_line_is_split_into_the_arguments_of_each_model():
    line = (
        "mpiexec --allow-run-as-root --tag-output -n 1 perf_analyzer --enable-mpi -m a -b 1 --shape x:3 "
        ": -n 1 /opt/bin/perf_analyzer --enable-mpi -m b -u localhost:8000"
    )
    assert split_commands(line.split()) == [
        ["--enable-mpi", "-m", "a", "-b", "1", "--shape", "x:3"],
        ["--enable-mpi", "-m", "b", "-u", "localhost:8000"],
    ]


@pytest.mark.parametrize("line", ["mpiexec", "mpiexec -n 1", "mpiexec -n 1 perf_analyzer -m a :", "mpiexec -n 2 perf_analyzer"])
def test_a_line_that_does_not_run_one_perf_analyzer_for_each_model_is_refused(line):
    with pytest.raises(CommandLineError):
        split_commands(line.split())
