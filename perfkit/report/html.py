"""Pages as HTML that needs nothing else: no scripts, no fonts, no network."""

import pathlib

import jinja2
import markupsafe

from perfkit.report.page import Figure, Page

_TEMPLATES = pathlib.Path(__file__).with_name("templates")


def render_html(page: Page) -> str:
    """The page as one HTML document."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"kind_of": lambda block: type(block).__name__, "inline_svg": _inline_svg}
    return environment.get_template("page.html.j2").render(page=page)


def _inline_svg(figure: Figure) -> markupsafe.Markup:
    """The picture without its XML declaration, named for screen readers; perfkit drew it, so it needs no escaping."""
    picture = markupsafe.Markup(figure.svg[figure.svg.index("<svg") :])  # noqa: S704 - our own SVG, whose texts matplotlib escaped
    label = markupsafe.escape(figure.label or figure.title)
    return markupsafe.Markup(picture.replace("<svg ", markupsafe.Markup('<svg role="img" aria-label="{}" ').format(label), 1))  # noqa: S704 - as above
