"""Results as runs of Weights & Biases, by its own client, which is an extra."""

import pathlib
from collections.abc import Sequence

from perfkit.errors import UsageError
from perfkit.installation import install_command
from perfkit.report.export import plain_name
from perfkit.report.figures_by_name import ARTIFACTS, metrics_of
from perfkit.result.file import RESULT_FILE, read_result


def log_runs(folders: Sequence[pathlib.Path], project: str) -> list[str]:
    """Logs each result as a finished run of a project, and returns a line for each.

    Server, key and mode are those of the client's variables, such as WANDB_MODE=offline. Raises UsageError if the client is not installed,
    or does not take the run, and ResultError.
    """
    try:
        import wandb
    except ImportError:
        raise UsageError(f"--wandb needs the client of Weights & Biases: {install_command('wandb')}") from None
    if (pathlib.Path(project) / RESULT_FILE).exists():
        raise UsageError(f"--wandb {project}: this is a result, and the option takes a project: give results first, or --wandb=PROJECT")
    results, lines = [read_result(folder) for folder in folders], []
    try:
        for result, folder in results:
            scenario, source = str(result.scenario.get("name") or "perfkit"), result.environment.get("source") or {}
            facts = {"status": result.status, "status_reason": result.status_reason, "started_at": result.started_at}
            facts |= {key: source[key] for key in ("commit", "branch") if source.get(key)}
            settings = wandb.Settings(
                console="off",
                # of this machine, its packages and the current folder, which are not those of the result
                disable_git=True,
                save_code=False,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
                silent=True,
            )
            config = {**result.scenario, "perfkit": facts}
            run = wandb.init(project=project, name=scenario, job_type="perfkit", config=config, settings=settings, reinit="create_new")
            run.log(metrics_of(result))
            artifact = wandb.Artifact(plain_name(f"{scenario}-{run.id}"), type="perfkit-result")
            for file in (folder / name for name in ARTIFACTS):
                if file.is_file():
                    artifact.add_file(str(file))
            run.log_artifact(artifact)
            run.finish(exit_code=0 if result.status == "complete" else 1)
            upload = f"; to upload it: wandb sync {run.settings.sync_dir}" if run.offline else ""
            lines.append(f"run {run.id} of the project {project} of Weights & Biases{upload}: {folder}")
    except (wandb.Error, OSError, ValueError) as error:  # ValueError: of settings
        raise UsageError(f"--wandb {project}: {' '.join(str(error).split())}") from None
    return lines
