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

`docs/use/host.md` tells what runs where, what is bounded, and what a class must not do.
"""

from coterie.kernel.errors import ReplicaBroken
from coterie.objects.classes.definition import Definition, ReplicatedObject
from coterie.objects.classes.faces import AsyncQuery, AsyncUpdate, MethodResult
from coterie.objects.classes.methods import Argument, Method, MethodKind, query, update
from coterie.objects.classes.reading import define
from coterie.objects.errors import (
    BadArguments,
    BadResult,
    BadSnapshot,
    Changed,
    CommandTooLarge,
    MethodFailed,
    NotAllowed,
    NotInAnUpdate,
    NotReplicable,
    ResultTooLarge,
    StateNotEncodable,
    UnknownMethod,
)
from coterie.objects.execution.commands import Call, CloseSession, OpenSession, Read, Tick
from coterie.objects.execution.current import new_id, now, random, standing_in
from coterie.objects.execution.outcomes import (
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
from coterie.objects.fronts import Front, Level, NoFront
from coterie.objects.host import ObjectHost
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
    "Changed",
    "CloseSession",
    "Closed",
    "CommandTooLarge",
    "Definition",
    "Done",
    "Failed",
    "Front",
    "HostSettings",
    "Level",
    "Method",
    "MethodFailed",
    "MethodKind",
    "MethodResult",
    "NoFront",
    "NotAllowed",
    "NotInAnUpdate",
    "NotReplicable",
    "NotTaken",
    "ObjectHost",
    "OpenSession",
    "Opened",
    "Outcome",
    "Read",
    "ReplicaBroken",
    "ReplicatedObject",
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
