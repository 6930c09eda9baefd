"""The scripts of a page: perfkit's own, which tests take out before they look for foreign ones."""

import pathlib
import re

import perfkit.report.render
from perfkit.report.render import SCRIPTS

_OWN = {(pathlib.Path(perfkit.report.render.__file__).parent / name).read_text(encoding="utf-8").strip() for name in SCRIPTS.values()}


def without_own_scripts(page: str) -> str:
    """The page without the scripts that perfkit ships and without the charts' data, which must not be able to end its element."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] == ' type="application/json" id="chart-data"':
            assert not set("<>&") & set(match[2])
            return ""
        return "" if not match[1] and match[2] in _OWN else match[0]

    return re.sub(r"<script([^>]*)>(.*?)</script>", replaced, page, flags=re.DOTALL)
