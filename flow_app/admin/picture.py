"""The timeline as a picture: where each span goes. Geometry only; the template draws it, the style sheet colours it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from flow_app.presenting import lasting, when
from flow_app.presenting.marks import Mark
from flow_app.presenting.sentences import first_line
from flow_app.presenting.timeline import Lane, Span, SpanState, Timeline

#: Lanes on one page, and spans in one lane: what is earlier is told in one sentence.
LANES = 40
SPANS = 25

WIDTH, LEFT, RIGHT = 1000, 230, 150
TOP, ROW, BAR = 34, 26, 14
_LEAST = 4.0
_NAME = 30
_TICKS = 5

_WORDS: dict[SpanState, tuple[str, str | Promise]] = {
    SpanState.QUEUED: ("○", pgettext_lazy("span", "queued")),
    SpanState.RUNNING: ("▶", pgettext_lazy("span", "running")),
    SpanState.BACKOFF: ("↻", pgettext_lazy("span", "waiting to be tried again")),
    SpanState.WAITING: ("◔", pgettext_lazy("span", "waiting")),
    SpanState.DONE: ("✓", pgettext_lazy("span", "done")),
    SpanState.FAILED: ("✗", pgettext_lazy("span", "failed")),
    SpanState.EXPIRED: ("✗", pgettext_lazy("span", "expired")),
    SpanState.WITHDRAWN: ("■", pgettext_lazy("span", "withdrawn")),
    SpanState.CANCELLED: ("■", pgettext_lazy("span", "cancelled")),
}

_MILESTONES: dict[str, tuple[str, str, str | Promise]] = {
    "run_started": ("busy", "▶", gettext_lazy("run started")),
    "run_cancellation_requested": ("warn", "◌", gettext_lazy("cancellation requested")),
    "run_completed": ("good", "✓", gettext_lazy("run completed")),
    "run_cancelled": ("gone", "■", gettext_lazy("run cancelled")),
    "run_failed": ("bad", "✗", gettext_lazy("run failed")),
    "run_timed_out": ("bad", "✗", gettext_lazy("run timed out")),
    "run_retry_exhausted": ("bad", "✗", gettext_lazy("run failed: a step has no attempt left")),
    "run_host_shutdown": ("bad", "✗", gettext_lazy("run ended: its host shut down")),
}

_KINDS = {"step": "▢", "wait": "◷", "hook": "⚓"}


@dataclass(frozen=True, slots=True)
class Bar:
    state: str
    x: str
    y: str
    width: str
    height: str
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """A lane. ``told`` says of each span what its title says, in one line and in the order of time."""

    kind: str
    sign: str
    name: str
    title: str
    y: int
    text_y: int
    bars: list[Bar]
    note: str
    told: list[str]


@dataclass(frozen=True, slots=True)
class Line:
    """A vertical line: a tick of the axis, or a milestone."""

    x: str
    text: str
    anchor: str = "middle"
    tone: str = ""
    title: str = ""
    told: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """``page`` counts from 1; ``total`` is the number of lanes there are."""

    width: int
    height: int
    bottom: int
    rows: list[Row]
    ticks: list[Line]
    milestones: list[Line]
    page: int
    pages: int
    total: int

    left = LEFT
    right = WIDTH - RIGHT
    note_x = WIDTH - RIGHT + 10
    top = TOP


def draw(found: Timeline, *, now: datetime, page: int | None = None) -> Picture | None:
    """The lanes of one page, the last one if none is named; None when there is nothing to draw."""
    if not found.lanes:
        return None
    pages = -(-len(found.lanes) // LANES)
    page = pages if page is None else min(max(page, 1), pages)
    lanes = found.lanes[(page - 1) * LANES : page * LANES]
    scale = _Scale(lanes, now=now, last=found.milestones[-1:] if page == pages else [])
    height = TOP + ROW * len(lanes) + 8
    return Picture(
        width=WIDTH,
        height=height,
        bottom=height - 6,
        rows=[_row(lane, index, scale) for index, lane in enumerate(lanes)],
        ticks=scale.ticks(),
        milestones=[_milestone(mark, scale) for mark in found.milestones if scale.shows(mark.at)],
        page=page,
        pages=pages,
        total=len(found.lanes),
    )


class _Scale:
    """From instants to pixels: the time that the lanes of a page take is the width."""

    def __init__(self, lanes: Sequence[Lane], *, now: datetime, last: Sequence[Mark]) -> None:
        spans = [span for lane in lanes for span in lane.spans[-SPANS:]]
        self.now = now
        self.start = min(span.start for span in spans)
        end = max([*(span.end or now for span in spans), *(mark.at for mark in last)])
        self.length = max(end - self.start, timedelta(milliseconds=1))

    def x(self, at: datetime) -> float:
        share = (at - self.start) / self.length
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def shows(self, at: datetime) -> bool:
        return timedelta(0) <= at - self.start <= self.length

    def ticks(self) -> list[Line]:
        anchors = ["start", *["middle"] * (_TICKS - 2), "end"]
        lines = [Line(px(LEFT), when(self.start, now=self.now), "start")]
        for index in range(1, _TICKS):
            share = index / (_TICKS - 1)
            x = LEFT + share * (WIDTH - LEFT - RIGHT)
            lines.append(Line(px(x), f"+{lasting(self.length * share)}", anchors[index]))
        return lines


def _row(lane: Lane, index: int, scale: _Scale) -> Row:
    y = TOP + ROW * index
    shown = [span for span in lane.spans[-SPANS:] if not (span.state.is_pause and span.end == span.start)]
    shown.sort(key=lambda span: not span.state.is_pause)  # what is short must not vanish behind a pause
    bars = [_bar(lane, span, y, scale) for span in shown]
    name = lane.name if len(lane.name) <= _NAME else f"{lane.name[: _NAME - 1]}…"
    title = lane.name if lane.detail in ("", lane.name) else f"{lane.name} ({lane.detail})"
    told = [", ".join(_told(span, scale)) for span in sorted(shown, key=lambda span: span.start)]
    return Row(lane.kind, _KINDS[lane.kind], name, title, y, y + ROW // 2 + 4, bars, _note(lane, scale), told)


def _note(lane: Lane, scale: _Scale) -> str:
    """What stands at the right of a lane: how its last span came out, how long it took, in how many attempts."""
    sign, _word = _WORDS[lane.last.state]
    parts = [f"{sign} {lasting((lane.last.end or scale.now) - lane.last.start)}"]
    if lane.attempts > 1:
        parts.append(f"×{lane.attempts}")
    return " ".join(parts)


def _bar(lane: Lane, span: Span, y: int, scale: _Scale) -> Bar:
    end = scale.now if span.end is None else span.end
    x, width = scale.x(span.start), scale.x(end) - scale.x(span.start)
    width = max(width, _LEAST)
    x = min(x, WIDTH - RIGHT - width)
    height = BAR // 2 if span.state.is_pause else BAR
    return Bar(
        state=span.state.value,
        x=px(x),
        y=px(y + (ROW - height) / 2),
        width=px(width),
        height=str(height),
        title="\n".join([lane.name, *_told(span, scale)]),
    )


def _told(span: Span, scale: _Scale) -> list[str]:
    """What there is to tell of a span, piece by piece."""
    lines = [str(_WORDS[span.state][1])]
    end = scale.now if span.end is None else span.end
    if span.attempt:
        lines.append(_("attempt %(attempt)d") % {"attempt": span.attempt})
    began = when(span.start, now=scale.now)
    if span.end is None:
        lines.append(_("since %(start)s, for %(length)s") % {"start": began, "length": lasting(end - span.start)})
    else:
        lines.append(_("from %(start)s, for %(length)s") % {"start": began, "length": lasting(end - span.start)})
    if span.until is not None:
        lines.append(_("until %(until)s") % {"until": when(span.until, now=scale.now)})
    if span.actor:
        lines.append(_("by %(actor)s") % {"actor": span.actor})
    return [*lines, first_line(span.note)] if span.note else lines


def _milestone(mark: Mark, scale: _Scale) -> Line:
    tone, sign, word = _MILESTONES.get(mark.type, ("idle", "•", mark.type))
    lines = [str(word), when(mark.at, now=scale.now)]
    if mark.actor:
        lines.append(_("by %(actor)s") % {"actor": mark.actor})
    if mark.note:
        lines.append(first_line(mark.note))
    return Line(px(scale.x(mark.at)), sign, tone=tone, title="\n".join(lines), told=", ".join(lines))


def px(value: float) -> str:
    """A number as SVG reads it, in every language."""
    return f"{value:.1f}".removesuffix(".0")
