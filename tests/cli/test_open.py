"""`perfkit open`: the page of what is stored at a path."""

import os
import webbrowser

import pytest


@pytest.fixture
def opened(monkeypatch):
    """The URIs that a browser was told to show."""
    uris = list[str]()

    def show(uri):
        uris.append(uri)
        return True

    monkeypatch.setattr(webbrowser, "open", show)
    return uris


@pytest.mark.parametrize(
    ("files", "argument", "page"),
    [
        (["out/result.json", "out/report.html"], "out", "out/report.html"),
        (["out/result.json", "out/report.html"], "out/result.json", "out/report.html"),
        (["out/verdict.json", "out/mine.html"], "out", "out/mine.html"),
        (["out/report.html", "out/plan.html"], "out/plan.html", "out/plan.html"),
        (["out/result.json", "out/plan/plan.html"], "out", "out/plan/plan.html"),
    ],
)
def test_the_page_of_a_folder_a_file_or_the_page_itself(perfkit, opened, tmp_path, monkeypatch, files, argument, page):
    monkeypatch.chdir(tmp_path)
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    finished = perfkit.run("open", argument)
    assert (finished.code, finished.stdout, opened) == (0, f"{page}\n", [(tmp_path / page).as_uri()])


def test_without_a_name_the_newest_of_reports_is_shown(perfkit, opened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, time_ns in (("a", 3), ("b", 5), ("c", 4)):
        (tmp_path / "reports" / name).mkdir(parents=True)
        (tmp_path / "reports" / name / "report.html").touch()
        os.utime(tmp_path / "reports" / name / "report.html", ns=(time_ns, time_ns))
    assert perfkit.run("open").stdout == "reports/b/report.html\n"
    assert opened == [(tmp_path / "reports/b/report.html").as_uri()]


def test_what_is_missing_is_named(perfkit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    assert "reports/ has no result with a page" in perfkit.run("open").stderr
    assert perfkit.run("open", "none").stderr == "perfkit: none: no such file or folder\n"
    assert "out: there is no page; `perfkit report out` writes that of a result" in perfkit.run("open", "out").stderr
    (tmp_path / "out" / "report.html").touch()
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    finished = perfkit.run("open", "out")
    assert (finished.code, finished.stdout) == (2, "out/report.html\n")
    assert "no browser was found: open this file in one" in finished.stderr
