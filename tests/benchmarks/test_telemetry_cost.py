import re

from benchmarks.telemetry_cost import FakeGpuEnvironment, cpu_table


def test_the_sampler_process_runs_on_fake_gpus_and_its_cpu_time_is_reported(tmp_path):
    lines, _ = cpu_table(FakeGpuEnvironment(tmp_path), 20.0, 0.1)
    assert len([line for line in lines if re.fullmatch(r"\| [^|]+ \| \d+\.\d\d% \|", line)]) == 3
