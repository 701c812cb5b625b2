from __future__ import annotations

import hashlib
import re

import pytest

from flow_app.core import tokens
from flow_app.core.commands import CreateHook
from flow_app.core.tasks import DisposeHookByToken, ResumeHookByToken
from flow_app.errors import HookTokenNotFoundError, InvalidTransitionError

SECRET = "s3cret-token"


def test_a_digest_is_the_sha_256_of_the_token():
    assert tokens.digest("abc") == "sha256:" + hashlib.sha256(b"abc").hexdigest()
    assert (
        tokens.digest("ü\ud800") == "sha256:" + hashlib.sha256("ü\ud800".encode("utf-8", "surrogatepass")).hexdigest()
    )


def test_an_imported_digest_stays_and_anything_else_is_digested():
    digest = tokens.digest("abc")
    assert tokens.as_digest(digest) == digest
    for raw in ("abc", "", digest + "0", digest[:-1], digest.upper(), " " + digest, digest + "\n"):
        assert tokens.as_digest(raw) == tokens.digest(raw)


@pytest.mark.parametrize("token", ["", "  ", None, 5, b"raw"], ids=repr)
def test_a_token_is_a_text_that_is_not_blank(token):
    with pytest.raises(InvalidTransitionError, match="token not shown"):
        tokens.check_token(token)


def test_a_refused_token_is_not_shown():
    with pytest.raises(InvalidTransitionError) as caught:
        tokens.check_token(SECRET.encode())
    assert SECRET not in str(caught.value) + repr(caught.value)


def test_a_derived_token_is_the_same_each_time_and_fits_a_url():
    token = tokens.derive("key", run_id="run-1", hook_id="approval")
    assert token == tokens.derive(b"key", run_id="run-1", hook_id="approval")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)


def test_a_derived_token_depends_on_secret_run_and_hook():
    names = [("key", "run-1", "a"), ("key2", "run-1", "a"), ("key", "run-2", "a"), ("key", "run-1", "b"),
             ("key", "run-1a", ""), ("key", "run-", "1a"), ("key", "run-1", "ü\ud800")]  # fmt: skip
    derived = {tokens.derive(secret, run_id=run, hook_id=hook) for secret, run, hook in names}
    assert len(derived) == len(names)


def test_a_token_is_found_again_under_a_fallback_secret():
    known = tokens.digest(tokens.derive("old", run_id="r", hook_id="h"))
    assert tokens.derive_matching(["new", "old"], run_id="r", hook_id="h", known=known) == tokens.derive(
        "old", run_id="r", hook_id="h"
    )
    assert tokens.derive_matching(["new"], run_id="r", hook_id="h", known=known) is None
    assert tokens.derive_matching([], run_id="r", hook_id="h", known=known) is None
    assert tokens.derive_matching(["old"], run_id="r", hook_id="other", known=known) is None


@pytest.mark.parametrize(
    "bearer",
    [
        CreateHook("h", SECRET),
        ResumeHookByToken(SECRET, {"ok": True}),
        DisposeHookByToken(SECRET),
        HookTokenNotFoundError(SECRET),
    ],
    ids=lambda bearer: type(bearer).__name__,
)
def test_what_carries_a_raw_token_does_not_show_it(bearer):
    assert bearer.token == SECRET
    assert SECRET not in f"{bearer!r} {bearer!s} {bearer}"
