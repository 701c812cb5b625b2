from __future__ import annotations

import pytest
from django.http import HttpResponse

from project.content_policy import content_policy


@pytest.mark.parametrize("status", [200, 302, 403, 404, 500])
@pytest.mark.parametrize("debug", [False, True])
def test_every_page_has_the_policy_but_those_that_django_explains_to_developers(settings, rf, status, debug):
    settings.DEBUG = debug
    response = content_policy(lambda request: HttpResponse(status=status))(rf.get("/"))
    policy = response.headers.get("Content-Security-Policy", "")
    assert bool(policy) == (not debug or status not in (404, 500))
    assert "unsafe" not in policy


def test_a_view_may_have_a_policy_of_its_own(rf):
    own = HttpResponse(headers={"Content-Security-Policy": "default-src 'none'"})
    assert content_policy(lambda request: own)(rf.get("/"))["Content-Security-Policy"] == "default-src 'none'"
