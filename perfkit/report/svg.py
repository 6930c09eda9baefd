"""Elements of SVG as text. Foreign text in them becomes harmless here."""

import html
import unicodedata
from collections.abc import Iterable, Sequence

from perfkit.text import LONGEST, visible

_MEAN_EM, _WIDE_EM = 0.57, 1.0
_FURTHEST = 1e5  # what lies outside the picture is cut off anyway


def number(value: float, digits: int = 1) -> str:
    """A coordinate; one decimal is less than a screen can show."""
    written = f"{min(max(value, -_FURTHEST), _FURTHEST):.{digits}f}".rstrip("0").rstrip(".")
    return "0" if written == "-0" else written


def attributes(values: dict[str, object]) -> str:
    """Attributes, each with a space before it; an underscore within a name stands for a hyphen, and those that are None are left out."""
    shown = {name: number(value) if isinstance(value, float) else value for name, value in values.items() if value is not None}
    return "".join(f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"' for name, value in shown.items())


def element(tag: str, content: str = "", **values: object) -> str:
    """An element; its content is SVG already."""
    return f"<{tag}{attributes(values)}>{content}</{tag}>" if content else f"<{tag}{attributes(values)}/>"


def group(parts: Iterable[str], **values: object) -> str:
    """A group of elements on lines of their own; empty without any."""
    content = "\n".join(filter(None, parts))
    return f"<g{attributes(values)}>\n{content}\n</g>" if content else ""


def document(parts: Iterable[str], width: float, height: float, **values: object) -> str:
    """A whole picture."""
    view = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {number(width)} {number(height)}", "width": width, "height": height}
    content = "\n".join(filter(None, parts))
    return f"<svg{attributes({**view, **values})}>\n{content}\n</svg>"


def text(content: str, x: float, y: float, **values: object) -> str:
    """Text at a place, on one line."""
    return element("text", html.escape(_harmless(content), quote=False), x=x, y=y, **values)


def path(points: Sequence[tuple[float, float] | None], *, is_stepped: bool = False, is_closed: bool = False) -> str:
    """The data of a path through points, interrupted where one is None. Steps keep each height until the next point."""
    parts: list[str] = []
    last: tuple[str, str] | None = None
    for point in points:
        if point is None:
            last = None
            continue
        x, y = number(point[0], 2), number(point[1])  # a page's script can stretch x
        if last is None:
            parts.append(f"M{x} {y}")
        elif (x, y) == last:
            continue
        else:
            parts.append(f"H{x}V{y}" if is_stepped else f"L{x} {y}")
        last = (x, y)
    return "".join(parts) + ("Z" if is_closed and parts else "")


def text_width(content: str, size: float) -> float:
    """About the width of text in a font of that size, since no font is at hand."""
    return size * sum(_WIDE_EM if unicodedata.east_asian_width(letter) in "WF" else _MEAN_EM for letter in _harmless(content))


def shortened(content: str, size: float, width: float) -> str:
    """The text if it has about that room, or else its beginning."""
    content = _harmless(content)
    if text_width(content, size) <= width:
        return content
    return content[: max(int(width / (size * _MEAN_EM)) - 1, 1)] + "…"


def _harmless(content: str) -> str:
    return visible(content[:LONGEST])
