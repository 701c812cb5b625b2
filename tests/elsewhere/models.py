"""A project's users, who have no user name."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models


class Person(AbstractBaseUser, PermissionsMixin):
    number = models.BigIntegerField(unique=True)
    is_staff = models.BooleanField(default=True)

    objects = BaseUserManager["Person"]()

    USERNAME_FIELD = "number"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        app_label = "elsewhere"
