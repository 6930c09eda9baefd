"""The pictures of the documentation: each exists, has words for readers who cannot see it, is small, and is shown or linked somewhere."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
SCREENS, PLOTS = ROOT / "docs/screens", ROOT / "docs/concepts/plots"
LARGEST_BYTES = {".png": 150_000, ".gif": 300_000, ".svg": 60_000}
LINK = re.compile(r"(?P<shown>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s]+\.(?:png|gif|svg))\)")


def test_every_picture_is_there_small_and_described():
    found = [
        (file, match) for file in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] for match in LINK.finditer(file.read_text("utf-8"))
    ]
    assert found
    for file, match in found:
        picture = file.parent / match["path"]
        assert picture.is_file(), f"{file.name}: {match['path']}; make it by python -m benchmarks.screens or benchmarks.concept_plots"
        assert picture.stat().st_size <= LARGEST_BYTES[picture.suffix], picture
        assert not match["shown"] or len(match["text"].split()) >= 5, f"{file.name}: {match['path']} needs a text that describes it"
    named = {(file.parent / match["path"]).resolve() for file, match in found}
    assert {*SCREENS.iterdir(), *PLOTS.iterdir()} <= named
