"""Pages as HTML that needs nothing else: no scripts, no fonts, no network."""

import html
import pathlib

import jinja2

from perfkit.report.page import Figure, Page

_TEMPLATES = pathlib.Path(__file__).with_name("templates")


def render_html(page: Page) -> str:
    """The page as one HTML document."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"kind_of": lambda block: type(block).__name__, "inline_svg": _inline_svg}
    return environment.get_template("page.html.j2").render(page=page)


def _inline_svg(figure: Figure) -> str:
    """The picture without its XML declaration, named for screen readers."""
    label = html.escape(figure.label or figure.title)
    return figure.svg[figure.svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
