"""The pictures of the documentation: each exists, has words for readers who cannot see it, is small, and is shown or linked somewhere."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
SCREENS = ROOT / "docs/screens"
LARGEST_BYTES = 150_000
LINK = re.compile(r"(?P<shown>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s]+\.png)\)")


def test_every_picture_is_there_small_and_described():
    found = [
        (file, match) for file in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] for match in LINK.finditer(file.read_text("utf-8"))
    ]
    assert found
    for file, match in found:
        picture = file.parent / match["path"]
        assert picture.is_file(), f"{file.name}: {match['path']}; make it by python -m benchmarks.screens"
        assert picture.stat().st_size <= LARGEST_BYTES, picture
        assert not match["shown"] or len(match["text"].split()) >= 5, f"{file.name}: {match['path']} needs a text that describes it"
    named = {(file.parent / match["path"]).resolve() for file, match in found}
    assert set(SCREENS.glob("*.png")) <= named
