"""Settings of the example project. ``DATABASE_URL`` picks the database; SQLite, in a file, needs nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import django

from flow_app import beat
from project.databases import database

BASE_DIR = Path(__file__).resolve().parent.parent

DEBUG = os.environ.get("DEBUG", "1") == "1"
SECRET_KEY = os.environ.get("SECRET_KEY", "only-for-the-example-project-and-its-tests-never-for-a-real-site")
ALLOWED_HOSTS = os.environ.get("ALLOWED_HOSTS", "localhost,127.0.0.1").split(",")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "flow_app",
    "project.invoices",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "project.content_policy.content_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "project" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# No ATOMIC_REQUESTS: steps run outside transactions, and on SQLite every open transaction holds the one write lock.
DATABASE_URL = os.environ.get("DATABASE_URL") or f"sqlite:///{BASE_DIR / 'db.sqlite3'}"
DATABASES = {"default": database(DATABASE_URL, keep=60)}
DEFAULT_AUTO_FIELD = os.environ.get("DEFAULT_AUTO_FIELD", "django.db.models.BigAutoField")

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.SessionAuthentication",
        "rest_framework.authentication.BasicAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_THROTTLE_RATES": {"flow_token": "60/min"},
}
SPECTACULAR_SETTINGS = {
    "TITLE": "flow_app example",
    "VERSION": "1",
    "COMPONENT_SPLIT_REQUEST": True,
    "SERVE_INCLUDE_SCHEMA": False,
    # Who answers a hook sends its token instead of a password.
    "APPEND_COMPONENTS": {"securitySchemes": {"flowToken": {"type": "http", "scheme": "bearer"}}},
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "static"

# Mail stays in this process, in django.core.mail.outbox: the demo's approver reads it there.
MAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": MAIL_BACKEND}}
else:
    EMAIL_BACKEND = MAIL_BACKEND
DEFAULT_FROM_EMAIL = "invoices@example.com"

# Without a broker, work is done in the call that asks for it. ``BROKER`` names one, and Celery carries the work:
# redis://localhost:6379/0, amqp://guest@localhost:5672//, or memory:// for a worker in this very process.
BROKER = os.environ.get("BROKER", "")

# Every key has a default; a project that tells builds apart would write:
# "BUILD": {"current": "v2", "accept_unpinned": True, "routes": {"v1": "flow-v1", "v2": "flow-v2"}}
FLOW_APP: dict[str, Any] = {"DISPATCHER": "flow_app.dispatch.CeleryDispatcher"} if BROKER else {}

CELERY_BROKER_URL = BROKER or "memory://"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Celery closes the database's connection around every task unless it is told how often to keep it, whatever
# CONN_MAX_AGE says. Measured: kept connections double what a worker gets done on PostgreSQL.
CELERY_DB_REUSE_MAX: int | None = 1000
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 10
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULE = beat.schedule(every=float(os.environ.get("TICK_SECONDS", "5")))
# Other transports refuse what they do not know. A broker that does not answer must not hold up a web request.
if BROKER.startswith("redis"):
    CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 3600, "socket_timeout": 10, "socket_connect_timeout": 3}
