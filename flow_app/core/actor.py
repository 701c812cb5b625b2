"""Who does something to a run, for verbs that are called over a network."""

from __future__ import annotations

from typing import Self


class Actor(str):
    """The name of who did it, as every verb takes it, and the network address that it came from."""

    __slots__ = ("address",)

    address: str

    def __new__(cls, name: str, *, address: str = "") -> Self:
        actor = super().__new__(cls, name)
        actor.address = address
        return actor
