"""The results as one SVG picture: a row for each workload, bars for each server, every cell on a scale of its own."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ops.bench.measurement import Figures

OWN_COLOUR = "#0b6e99"
OTHER_COLOUR = "#b5bcc4"
_TITLE = 'font-size="16" font-weight="bold" fill="#1f2328"'
_ROW_NAME = 'font-size="13" font-weight="bold" fill="#1f2328"'
_PLAIN = 'font-size="11" fill="#1f2328"'
_OWN = 'font-size="11" font-weight="bold" fill="#1f2328"'
_SERVER_NAME = 'font-size="11" fill="#1f2328" text-anchor="end"'
_FAINT = 'font-size="12" fill="#656d76"'
_LEFT, _CELL, _GAP = 130, 250, 120
_BAR, _PITCH, _ROW_GAP = 14, 19, 16
_HEAD, _MARGIN = 74, 20


@dataclass(frozen=True)
class Panel:
    title: str
    value: Callable[[Figures], float]
    digits: int


PANELS = (
    Panel("output tokens/s (more is better)", lambda row: row.output_tokens_per_s, 0),
    Panel("first token, p50 ms (less is better)", lambda row: row.ttft_p50, 0),
    Panel("between tokens, p50 ms (less is better)", lambda row: row.itl_p50, 1),
)


def svg(rows: Sequence[Figures], own_server: str, caption: str) -> str:
    """One picture of all rows, those of `own_server` and its variants in colour, `caption` at its foot."""
    body: list[str] = []
    y = _HEAD
    for model in dict.fromkeys(row.model for row in rows):
        body.append(_text(_MARGIN, y - 44, model, _TITLE))
        body += [_text(_column(i), y - 18, panel.title, _FAINT) for i, panel in enumerate(PANELS)]
        for workload in dict.fromkeys(row.workload for row in rows if row.model == model):
            group = [row for row in rows if (row.model, row.workload) == (model, workload)]
            body += _row(group, own_server, y)
            y += len(group) * _PITCH + _ROW_GAP
        y += _HEAD
    body.append(_text(_MARGIN, y - 50, caption, _FAINT))
    width, height = _column(len(PANELS) - 1) + _CELL + _MARGIN + 60, y - 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _row(group: Sequence[Figures], own_server: str, y: int) -> Iterator[str]:
    """One workload: the servers' names only once, left of the first cell."""
    yield _text(_MARGIN, y + _BAR - 2, group[0].workload, _ROW_NAME)
    for column, panel in enumerate(PANELS):
        values = [panel.value(row) for row in group]
        largest = max((value for value in values if not math.isnan(value)), default=0.0)
        for place, (row, value) in enumerate(zip(group, values, strict=True)):
            top = y + place * _PITCH
            is_own = row.server.startswith(own_server)
            if column == 0:
                yield _text(_column(0) - 8, top + _BAR - 3, row.server, _SERVER_NAME)
            yield from _bar(_column(column), top, value, largest, panel.digits, is_own)


def _bar(x: int, y: int, value: float, largest: float, digits: int, is_own: bool) -> Iterator[str]:
    if math.isnan(value):
        yield _text(x, y + _BAR - 3, "–", _FAINT)
        return
    width = max(1.0, (_CELL - 60) * value / largest) if largest > 0 else 1.0
    colour = OWN_COLOUR if is_own else OTHER_COLOUR
    yield f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2" fill="{colour}"/>'
    yield _text(x + width + 6, y + _BAR - 3, f"{value:.{digits}f}", _OWN if is_own else _PLAIN)


def _column(index: int) -> int:
    return _LEFT + _GAP - 20 + index * (_CELL + 20)


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" {style}>{escape(text)}</text>'
