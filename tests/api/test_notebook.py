"""The notebook of the documentation, executed by nbclient: it measures, and shows the frame, the plot and the report."""

import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = pathlib.Path(__file__).parents[2] / "docs" / "notebook.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_stored_notebook_holds_no_outputs(notebook):
    assert all(cell.outputs == [] and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


def test_the_notebook_runs_and_shows_the_frame_the_plot_and_the_report(notebook, tmp_path, monkeypatch):
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "PERFKIT_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    NotebookClient(notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.data for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs if "data" in output]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert "<td>http</td>" in pages[0]  # the result
    assert "throughput_per_s" in pages[1]
    assert "completions" in pages[2]
    assert any("image/png" in data for data in shown)
    assert "<iframe" in pages[-1]
    assert "&lt;!DOCTYPE html&gt;" in pages[-1]
