"""The columns of the run list. All that they show was read with the page: none of them asks the database."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from flow_app.models import Run
from flow_app.presenting import Badge, badges, headline, lasting, when

COLUMNS = ("run_id", "standing", "code", "progress", "waits_for", "next_look", "age")


def badge_html(badge: Badge) -> SafeString:
    """A badge: word, sign and colour."""
    return format_html(
        '<span class="flow-badge flow-{}"><span aria-hidden="true">{}</span> {}</span>',
        badge.tone,
        badge.sign,
        badge.word,
    )


def badges_html(found: list[Badge]) -> SafeString:
    return format_html_join(" ", "{}", ((badge_html(badge),) for badge in found))


def progress_html(completed: int, total: int | None) -> SafeString:
    """A bar where the total is known, else the number."""
    if total is None:
        return format_html("{}", completed)
    label = f"{completed}/{total}"
    return format_html(
        '<progress class="flow-progress" max="{}" value="{}">{}</progress> <span class="flow-quiet">{}</span>',
        str(total), str(completed), label, label,
    )  # fmt: skip


class RunColumns:
    """A mixin for the ModelAdmin of runs. ``seen_waiting`` and ``seen_at`` are put on each run by its change list."""

    @admin.display(description=gettext_lazy("status"))
    def standing(self, run: Any) -> SafeString:
        return badges_html(badges(run, now=run.seen_at))

    @admin.display(description=gettext_lazy("workflow"))
    def code(self, run: Run) -> SafeString:
        build = _("build %(build)s") % {"build": run.build} if run.build else ""
        version = _("version %(version)s") % {"version": run.version}
        quiet = " · ".join(filter(None, [version, build]))
        return format_html('{}<br><span class="flow-quiet">{}</span>', run.workflow, quiet)

    @admin.display(description=gettext_lazy("progress"), empty_value="")
    def progress(self, run: Run) -> SafeString | None:
        if run.progress_completed is None:
            return None
        return progress_html(run.progress_completed, run.progress_total)

    @admin.display(description=gettext_lazy("what it does"))
    def waits_for(self, run: Any) -> str:
        return headline(run, run.seen_waiting, now=run.seen_at)

    @admin.display(description=gettext_lazy("next look"))
    def next_look(self, run: Any) -> SafeString:
        at = "" if run.wake_at is None else moment_html(run.wake_at, now=run.seen_at)
        tried = self.attempts(run)
        return format_html('{}<br><span class="flow-quiet">{}</span>', at, tried) if tried else format_html("{}", at)

    def attempts(self, run: Run) -> str:
        """How often it was tried without getting on."""
        counts = (
            (run.blocked_count, _("blocked %(count)d×")),
            (run.lost_leases, _("worker lost %(count)d×")),
            (run.dispatches if run.dispatches > 1 else 0, _("sent %(count)d×")),
        )
        return ", ".join(text % {"count": count} for count, text in counts if count)

    @admin.display(description=gettext_lazy("started"))
    def age(self, run: Any) -> SafeString:
        took = (run.finished_at or run.seen_at) - run.created_at
        started = moment_html(run.created_at, now=run.seen_at)
        return format_html('{}<br><span class="flow-quiet">{}</span>', started, lasting(took))


def moment_html(at: Any, *, now: Any) -> SafeString:
    """An instant in words, with the exact one for machines and on hover."""
    exact = at.isoformat()
    return format_html('<time datetime="{}" title="{}">{}</time>', exact, exact, when(at, now=now))
