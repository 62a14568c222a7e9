"""Replicated objects: from a plain class to a state machine that engines drive.

    from coterie.objects import define, query, update

    class Counter:
        value: int = 0

        @update
        def add(self, amount: int) -> int:
            self.value += amount
            return self.value

        @query
        def total(self) -> int:
            return self.value

    counter = define(Counter)    # refuses, with the reason, what cannot be replicated

`docs/host.md` tells what runs where, what is bounded, and what a class must not do.
"""

from coterie.objects.commands import Call, CloseSession, Effects, OpenSession, Read, Tick
from coterie.objects.current import new_id, now, random, standing_in
from coterie.objects.definition import Definition, ReplicatedObject
from coterie.objects.errors import (
    BadArguments,
    BadResult,
    BadSnapshot,
    CommandTooLarge,
    NotInAnUpdate,
    NotReplicable,
    QueryFailed,
    ReplicaBroken,
    ResultTooLarge,
    StateNotEncodable,
    UnknownMethod,
)
from coterie.objects.faces import AsyncQuery, AsyncUpdate, Result
from coterie.objects.fronts import Front, Level, NoFront
from coterie.objects.host import ObjectHost
from coterie.objects.methods import Argument, Kind, Method, query, update
from coterie.objects.outcomes import (
    AllDone,
    AlreadyForgotten,
    Answer,
    Closed,
    Done,
    Failed,
    NotTaken,
    Opened,
    Outcome,
    SessionEvicted,
    WindowFull,
)
from coterie.objects.reading import define
from coterie.objects.settings import DEFAULT_HOST_SETTINGS, HostSettings

__all__ = [
    "DEFAULT_HOST_SETTINGS",
    "AllDone",
    "AlreadyForgotten",
    "Answer",
    "Argument",
    "AsyncQuery",
    "AsyncUpdate",
    "BadArguments",
    "BadResult",
    "BadSnapshot",
    "Call",
    "CloseSession",
    "Closed",
    "CommandTooLarge",
    "Definition",
    "Done",
    "Effects",
    "Failed",
    "Front",
    "HostSettings",
    "Kind",
    "Level",
    "Method",
    "NoFront",
    "NotInAnUpdate",
    "NotReplicable",
    "NotTaken",
    "ObjectHost",
    "OpenSession",
    "Opened",
    "Outcome",
    "QueryFailed",
    "Read",
    "ReplicaBroken",
    "ReplicatedObject",
    "Result",
    "ResultTooLarge",
    "SessionEvicted",
    "StateNotEncodable",
    "Tick",
    "UnknownMethod",
    "WindowFull",
    "define",
    "new_id",
    "now",
    "query",
    "random",
    "standing_in",
    "update",
]
