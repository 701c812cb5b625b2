"""Which hooks a word finds: by what the inbox shows of them to who asks, and by nothing else that they hold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from django.db.models import Q, QuerySet

from flow_app.core.payload import dumps
from flow_app.models import Run, RunLabel
from flow_app.models.keys import text_key
from flow_app.presenting import facts_of

#: Hooks that are found by their own words; nobody pages further.
MOST = 1000
_AT_A_TIME = 50


def find(hooks: QuerySet[Any], words: str, *, own: bool, sees_runs: bool) -> QuerySet[Any]:
    """Hooks with exactly these words: the run's id, its subject or label, or the hook's ``own`` ones.

    Those of runs have an index, and only who may see runs asks for what no hook shows of them. A hook's own stand in
    its metadata, beside what takes ``view_payload``: the database only proposes, and what is shown decides.
    """
    found = Q(run__in=Run.objects.using(hooks.db).filter(_of_runs(words, hooks.db, sees_runs=sees_runs)).values("pk"))
    if own or not sees_runs:
        found |= Q(pk__in=list(islice(_shown(hooks, words, own=own, sees_runs=sees_runs), MOST)))
    return hooks.filter(found)


def _of_runs(words: str, using: str, *, sees_runs: bool) -> Q:
    asked = Q(run_key=text_key(words))
    if sees_runs:
        name, equals, value = words.partition("=")
        asked |= Q(subject=words)
        if equals:
            asked |= Q(pk__in=RunLabel.objects.using(using).matching(name, value).values("run"))
    return asked


def _shown(hooks: QuerySet[Any], words: str, *, own: bool, sees_runs: bool) -> Iterator[int]:
    """Keys of the hooks that show these words as their subject or as one of their labels."""
    name, equals, value = words.partition("=")
    proposed = Q() if sees_runs else Q(run__subject=words)
    if own:
        proposed |= Q(metadata__contains=_member("subject", words))
        if equals:
            proposed |= Q(metadata__contains=_member(name, value))
    rows = hooks.filter(proposed).order_by("pk").values_list("pk", "metadata", "run__subject")
    for key, metadata, subject in rows.iterator(chunk_size=_AT_A_TIME):
        facts = facts_of(metadata)
        if (facts.subject or subject) == words or (equals and facts.labels.get(name) == value):
            yield key


def _member(name: str, value: str) -> str:
    """The canonical text of one member of a JSON object."""
    return dumps({name: value})[1:-1]
