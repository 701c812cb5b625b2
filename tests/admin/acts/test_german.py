"""The German translation: complete, true to the source, and on every page."""

from __future__ import annotations

import gettext
import re
import shutil
from ast import literal_eval
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.management import call_command
from django.test import override_settings
from django.utils import translation

import flow_app
from flow_app.models import Hook
from tests.admin.acts import pages
from tests.admin.acts.flows import hook_of, run_of
from tests.admin.acts.people import browser
from tests.admin.acts.test_permissions import ACTS, PAGES, address

PACKAGE = Path(flow_app.__file__).parent
GERMAN = PACKAGE / "locale/de/LC_MESSAGES"
Entry = tuple[str, list[str], list[str]]


def entries(path: Path) -> list[Entry]:
    """Context, source texts (one, or singular and plural) and translations of each entry of a catalogue."""
    found = [_entry(block) for block in path.read_text(encoding="utf-8").strip().split("\n\n")[1:]]
    assert not any("fuzzy" in line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#,"))
    return found


def _entry(block: str) -> Entry:
    fields = re.findall(r'^(msg\w+(?:\[\d\])?) ((?:".*"\n?)+)', block, re.MULTILINE)
    texts = {name: "".join(literal_eval(line) for line in text.strip().split("\n")) for name, text in fields}
    sources = [texts[name] for name in ("msgid", "msgid_plural") if name in texts]
    return texts.get("msgctxt", ""), sources, [text for name, text in texts.items() if name.startswith("msgstr")]


def names(text: str) -> set[str]:
    return set(re.findall(r"%\(\w+\)[sd]|\{\}", text))


def test_every_text_is_translated_and_says_the_same_things():
    for context, sources, translations in entries(GERMAN / "django.po"):
        assert len(sources) == len(translations)
        assert all(translations), (context, sources)
        for source, text in zip(sources, translations, strict=True):
            assert names(source) == names(text), source
            assert source.endswith(".") == text.endswith("."), source


def test_what_is_compiled_is_what_is_written():
    with (GERMAN / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for context, (source, *plural), (text, *_more) in entries(GERMAN / "django.po"):
        if plural:
            assert compiled.ngettext(source, plural[0], 1) == text
        else:
            assert (compiled.pgettext(context, source) if context else compiled.gettext(source)) == text


@pytest.mark.skipif(shutil.which("xgettext") is None, reason="needs GNU gettext")
@pytest.mark.parametrize("language", ["de", "en"])
def test_the_catalogue_has_all_texts_of_the_source_and_no_others(language, tmp_path, monkeypatch):
    ignored = shutil.ignore_patterns("__pycache__", "*.mo")
    shutil.copytree(PACKAGE, tmp_path / "flow_app", ignore=ignored)
    monkeypatch.chdir(tmp_path / "flow_app")
    options = {"no_wrap": True, "no_location": True, "no_obsolete": True, "verbosity": 0}
    call_command("makemessages", locale=[language], **options)
    now = entries(tmp_path / f"flow_app/locale/{language}/LC_MESSAGES/django.po")
    assert now == entries(PACKAGE / f"locale/{language}/LC_MESSAGES/django.po")


# --- on the pages -----------------------------------------------------------------------------------------------------


class _Texts(HTMLParser):
    """Everything that a page says: its text, and the attributes that are read aloud or shown on hover.

    Codes and errors are quoted, in <code> and <pre>: they are in no language.
    """

    QUOTES = ("script", "style", "code", "pre")
    SAID = ("title", "aria-label", "placeholder", "alt")

    def __init__(self) -> None:
        super().__init__()
        self.texts: set[str] = set()
        self._silent = 0

    def handle_starttag(self, tag, attrs):
        self._silent += tag in self.QUOTES
        given = dict(attrs)
        said = [given.get(name) for name in self.SAID]
        if tag == "input" and given.get("type") in ("submit", "button"):
            said.append(given.get("value"))
        self.texts |= {text.strip() for text in said if text}

    def handle_endtag(self, tag):
        self._silent -= tag in self.QUOTES

    def handle_data(self, data):
        if not self._silent:
            self.texts.add(" ".join(data.split()).rstrip(":"))


def english_on(page: str) -> list[str]:
    """Texts of ours on the page that stand there as in the source."""
    reader = _Texts()
    reader.feed(page)
    left = []
    catalogue = entries(GERMAN / "django.po")
    german = {text.lower() for _context, _sources, translations in catalogue for text in translations}
    for _context, sources, _translations in catalogue:
        for source in sources:
            if source.lower() in german:  # a word that both languages have, if for different things
                continue
            wanted = re.sub(r"%\\\(\w+\\\)[sd]|\\\{\\\}", ".+", re.escape(" ".join(source.split())))
            left += [text for text in reader.texts if re.fullmatch(wanted, text)]
    return left


@pytest.fixture
def reader():
    """Somebody who reads German. The middleware that looks at what browsers ask for is the project's matter."""
    with override_settings(LANGUAGE_CODE="de"), translation.override("de"):
        yield browser("superuser")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("flow", ["asks", "sleeps", "tries", "stuck"])
def test_every_page_is_german(reader, flow):
    run = run_of(flow, run_id="r1")
    hook = Hook.objects.filter(run=run).first()
    urls = [
        address(name, run, hook or Hook(pk=0))
        for name, allowed in PAGES.items()
        if allowed and (hook is not None or "_hook_" not in name or name.endswith("changelist"))
    ]
    urls += [pages.act(run, name) for name in ACTS if name not in ("approve", "reject", "answer", "withdraw")]
    if hook is not None:
        urls += [pages.act(hook, name) for name in ("approve", "reject", "answer", "withdraw")]
    for url in urls:
        assert english_on(reader.get(url).content.decode()) == [], url
    asked = {"action": "pause", ACTION_CHECKBOX_NAME: [run.pk]}
    assert english_on(reader.post(pages.runs(), asked).content.decode()) == []


@pytest.mark.django_db(transaction=True)
def test_what_is_said_about_acts_is_german(reader):
    run = run_of("asks", run_id="r1")
    hook = hook_of(run)
    assert pages.do(reader, hook, "approve") == ["approval (r1): Freigegeben."]
    (text,) = pages.do(reader, hook, "reject")
    assert text.startswith("approval (r1): Es wurde nichts geändert, denn es ist schon entschieden. Freigegeben von")
    assert pages.do(reader, run, "pause") == ["r1: Es wurde nichts geändert: Der Lauf ist beendet (abgeschlossen)."]


def test_the_search_for_english_finds_it():
    assert english_on("<p>Nothing was changed: the run is gone.</p>")
    assert english_on('<a title="Pages of runs">x</a>')
    assert english_on("<p>Completed 10:02, after 3 s.</p>")
    assert not english_on("<p>Workflow</p>")
