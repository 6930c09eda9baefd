import pathlib
import re

import perfkit
from perfkit.perf_analyzer.option_table import BY_NAME

_PAGE = pathlib.Path(perfkit.__file__).parents[1] / "docs" / "how-to" / "perf_analyzer.md"


def test_the_page_says_what_becomes_of_each_option():
    table = _PAGE.read_text().partition("## Each option as a scenario key")[2].partition("\n## ")[0]
    first_cells = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")]
    named = {name for cell in first_cells for name in re.findall(r"(?<![\w-])(--?[a-zA-Z][a-z-]*)", cell)}
    assert named == {*BY_NAME}
