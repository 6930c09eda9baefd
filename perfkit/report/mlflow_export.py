"""Results as runs of an MLflow tracking server, by MLflow's own client, which is an extra."""

import os
import pathlib
from collections.abc import Sequence

from perfkit.clock import parse_instant
from perfkit.errors import UsageError
from perfkit.installation import install_command
from perfkit.report.figures_by_name import ARTIFACTS, metrics_of, parameters_of
from perfkit.result.file import read_result
from perfkit.result.model import Result

_BATCH = 100  # parameters of one request
_METRICS = 1000  # of one request
# MLflow's defaults ask a server that is away for minutes, and print addresses to stdout
_CLIENT_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_STATUS = {"complete": "FINISHED", "interrupted": "KILLED"}


def log_results(folders: Sequence[pathlib.Path], uri: str) -> list[str]:
    """Logs each result as a finished run, and returns a line for each.

    The experiment is MLFLOW_EXPERIMENT_NAME, or else `perfkit`. Raises UsageError if the client is not installed or the server refuses, and
    ResultError.
    """
    for variable, value in _CLIENT_SETTINGS.items():
        os.environ.setdefault(variable, value)
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise UsageError(f"--mlflow needs MLflow's client: {install_command('mlflow')}") from None
    results = [read_result(folder) for folder in folders]
    lines = []
    try:
        client = MlflowClient(tracking_uri=uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "perfkit"
        experiment = client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
        for result, folder in results:
            start_ms = round(parse_instant(result.started_at).timestamp() * 1000)
            scenario = str(result.scenario.get("name") or "perfkit")
            run_id = client.create_run(experiment_id, start_time=start_ms, tags=tags_of(result), run_name=scenario).info.run_id
            params = [Param(key, value) for key, value in parameters_of(result).items()]
            for first in range(0, len(params), _BATCH):
                client.log_batch(run_id, params=params[first : first + _BATCH])
            metrics = [Metric(key, value, start_ms, 0) for key, value in metrics_of(result).items()]
            for first in range(0, len(metrics), _METRICS):
                client.log_batch(run_id, metrics=metrics[first : first + _METRICS])
            for artifact in (folder / name for name in ARTIFACTS):
                if artifact.is_file():
                    client.log_artifact(run_id, str(artifact))
            measured_s = sum(point.warmup_s + point.duration_s for point in result.points)
            client.set_terminated(run_id, _STATUS.get(result.status, "FAILED"), start_ms + round(measured_s * 1000))
            lines.append(f"MLflow run {run_id} of the experiment {name}: {folder}")
    except (MlflowException, OSError) as error:  # OSError: also of the client's HTTP library, and of files
        raise UsageError(f"--mlflow {uri}: {' '.join(str(error).split())}") from None
    return lines


def tags_of(result: Result) -> dict[str, str]:
    """MLflow's own tags of commit and branch, and `perfkit.status` with its reason, where known."""
    source = result.environment.get("source") or {}
    tags = {
        "mlflow.source.name": "perfkit",
        "mlflow.source.git.commit": source.get("commit"),
        "mlflow.source.git.branch": source.get("branch"),
        "perfkit.status": result.status,
        "perfkit.status_reason": result.status_reason,
    }
    return {key: str(value) for key, value in tags.items() if value}
