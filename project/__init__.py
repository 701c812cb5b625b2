"""The example project: flow_app at work in an ordinary Django site."""

from project.celery import app as celery_app

__all__ = ["celery_app"]
