"""The object as its caller sees it: its methods, to be awaited.

`coterie.objects.classes.faces` has these shapes for type checkers. A method is made once and kept,
so a call costs a look-up, the check of its arguments, and a request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.client.errors import NotDone
from coterie.client.pending import PendingCall
from coterie.objects import MethodKind
from coterie.objects.classes.declared import NO_ERRORS
from coterie.objects.errors import UnknownMethod
from coterie.objects.execution.commands import CONDITIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from coterie.client.group import GroupClient
    from coterie.client.results import OnReordered
    from coterie.client.sessions import CallSession
    from coterie.kernel.views import Viewstamp
    from coterie.objects import Definition
    from coterie.objects.classes.declared import DeclaredErrors
    from coterie.objects.classes.faces import AnyResult, ColourName, LevelName
    from coterie.objects.execution.commands import Condition

BATCH_BYTES_MAX = 128 << 10
"""What the arguments of one batch may weigh together, unless it has one call only."""


class GroupConnection:
    """What stands behind an object: the client, and what it is called in."""

    def __init__(self, client: GroupClient, session: CallSession) -> None:
        self.client = client
        self.session = session


class UpdateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a call beside its arguments: see `RemoteUpdate.options`."""

    deadline: float | None = None
    majority: bool = False
    colour: ColourName = "green"
    conditions: tuple[Condition, ...] = ()
    on_reordered: OnReordered | None = None


PLAIN = UpdateOptions()


class RemoteUpdate:
    """An update, to be called."""

    __slots__ = ("_connection", "_decode", "_encode", "_errors", "_name", "_options")

    def __init__(  # noqa: PLR0913 -- made in one place
        self,
        connection: GroupConnection,
        name: str,
        encode: Callable[[Sequence[object], Mapping[str, object]], bytes],
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        options: UpdateOptions = PLAIN,
    ) -> None:
        self._connection = connection
        self._name = name
        self._encode = encode
        self._decode = decode
        self._errors = errors
        self._options = options

    def __call__(self, *args: object, **kwargs: object) -> PendingCall[Any]:
        """Call it; the answer is to be awaited."""
        return self._call(args, kwargs, is_detailed=False)

    def detailed(self, *args: object, **kwargs: object) -> PendingCall[Any]:
        """Call it, and get a `Result`: the answer, where it was executed, and what it claims."""
        return self._call(args, kwargs, is_detailed=True)

    def _call(
        self, args: Sequence[object], kwargs: Mapping[str, object], *, is_detailed: bool
    ) -> PendingCall[Any]:
        options = self._options
        future = self._connection.session.call(
            self._name,
            self._encode(args, kwargs),
            self._decode,
            errors=self._errors,
            deadline=options.deadline,
            majority=options.majority,
            colour=options.colour,
            conditions=options.conditions,
            on_reordered=options.on_reordered,
            is_detailed=is_detailed,
        )
        return PendingCall(future)

    def many(self, calls: Iterable[Sequence[object]]) -> PendingCall[Any]:
        """Make many calls, each a sequence of arguments, packed; give their answers in order.

        Where a call did not end well its exception stands in place of the answer.
        """
        options = self._options
        if options.colour == "red":
            raise NotDone("many calls together wait for green: make red ones one by one")
        if options.conditions:
            raise NotDone("many calls together have no conditions: make those one by one")
        session = self._connection.session
        encoded = [self._encode(call, {}) for call in calls]
        parts = [
            session.call_many(
                self._name, part, self._decode, errors=self._errors, deadline=options.deadline
            )
            for part in _parts(encoded, session.batch_max)
        ]

        async def gathered() -> Sequence[Any]:
            results: list[Any] = []
            for part in parts:
                results += await part  # type: ignore[arg-type]
            return results

        return PendingCall(asyncio.ensure_future(gathered()))

    def options(
        self,
        *,
        deadline: float | None = None,
        majority: bool = False,
        colour: ColourName = "green",
        if_unchanged: Sequence[AnyResult] = (),
        on_reordered: OnReordered | None = None,
    ) -> RemoteUpdate:
        """Give the same method with another deadline (seconds), and other choices.

        With *majority* an optimistic answer is held back until a majority of the replicas have
        given it with the same viewstamp, which makes it authoritative. With *colour* "red" a group
        over a partitioned network answers at once, whichever side it is on (`detailed` gives a
        result that can be awaited until it is green); *on_reordered* is then called with the red
        outcome and the green one, each a result or an exception, if they differ.

        *if_unchanged* are results that queries gave (`detailed`): the update is executed only if
        the same queries still answer the same at its place in the order, and raises `Changed`
        otherwise.
        """
        chosen = UpdateOptions(
            deadline=deadline,
            majority=majority,
            colour=colour,
            conditions=_conditions(if_unchanged),
            on_reordered=on_reordered,
        )
        return RemoteUpdate(
            self._connection,
            self._name,
            self._encode,
            self._decode,
            errors=self._errors,
            options=chosen,
        )


def _conditions(seen: Sequence[AnyResult]) -> tuple[Condition, ...]:
    if len(seen) > CONDITIONS_MAX:
        raise NotDone(f"an update rests on {CONDITIONS_MAX} answers at most")
    found = [each.seen for each in seen]
    if None in found:
        raise NotDone("if_unchanged takes what queries answered, by detailed()")
    return tuple(each.condition() for each in found if each is not None)


class RemoteQuery:
    """A query, to be called."""

    __slots__ = (
        "_connection",
        "_deadline",
        "_decode",
        "_encode",
        "_errors",
        "_level",
        "_name",
        "_not_before",
    )

    def __init__(  # noqa: PLR0913 -- made in one place
        self,
        connection: GroupConnection,
        name: str,
        encode: Callable[[Sequence[object], Mapping[str, object]], bytes],
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        deadline: float | None = None,
        level: LevelName = "consistent",
        not_before: Viewstamp | None = None,
    ) -> None:
        self._connection = connection
        self._name = name
        self._encode = encode
        self._decode = decode
        self._errors = errors
        self._deadline = deadline
        self._level = level
        self._not_before = not_before

    def __call__(self, *args: object, **kwargs: object) -> PendingCall[Any]:
        """Call it; the answer is to be awaited."""
        return self._ask(args, kwargs, is_detailed=False)

    def detailed(self, *args: object, **kwargs: object) -> PendingCall[Any]:
        """Call it, and get a `Result`: the answer, and which state it was given from."""
        return self._ask(args, kwargs, is_detailed=True)

    def _ask(
        self, args: Sequence[object], kwargs: Mapping[str, object], *, is_detailed: bool
    ) -> PendingCall[Any]:
        future = self._connection.session.query(
            self._name,
            self._encode(args, kwargs),
            self._decode,
            errors=self._errors,
            level=self._level,
            not_before=self._not_before,
            deadline=self._deadline,
            is_detailed=is_detailed,
        )
        return PendingCall(future)

    def options(
        self,
        *,
        deadline: float | None = None,
        level: LevelName = "consistent",
        not_before: Viewstamp | None = None,
    ) -> RemoteQuery:
        """Give the same method with another deadline (seconds), or another claim.

        `dirty` is this replica with all it knows, `weak` this replica with what is authoritative,
        `consistent` linearizable. The state is not older than *not_before*.
        """
        return RemoteQuery(
            self._connection,
            self._name,
            self._encode,
            self._decode,
            errors=self._errors,
            deadline=deadline,
            level=level,
            not_before=not_before,
        )


class RemoteObject:
    """An object of a known class; its attributes are the methods of the class."""

    def __init__(self, connection: GroupConnection, definition: Definition) -> None:
        self.__connection = connection
        self.__definition = definition

    def __getattr__(self, name: str) -> RemoteUpdate | RemoteQuery:
        try:
            method = self.__definition.method(name)
        except UnknownMethod as error:
            # What Python itself looks for, such as __deepcopy__, is simply not there.
            raise (AttributeError(name) if name.startswith("__") else error) from None
        make = RemoteUpdate if method.kind is MethodKind.UPDATE else RemoteQuery
        made = make(
            self.__connection,
            name,
            method.encode,
            method.decode_result,
            errors=self.__definition.errors,
        )
        self.__dict__[name] = made
        return made

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_RemoteObject__"):
            raise AttributeError(assigning(self.__definition.name, name))
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.__definition.methods)

    def __repr__(self) -> str:
        return f"<{self.__definition.name} of group {self.__connection.client.group!r}>"


def _parts(calls: Sequence[bytes], count_max: int) -> Iterator[Sequence[bytes]]:
    """Cut calls into batches, none of which is too large for a command."""
    start = size = 0
    for index, call in enumerate(calls):
        if index > start and (index - start >= count_max or size + len(call) > BATCH_BYTES_MAX):
            yield calls[start:index]
            start, size = index, 0
        size += len(call)
    if start < len(calls):
        yield calls[start:]


def assigning(owner: str, name: str) -> str:
    """Say why an attribute of a replicated object cannot be assigned where it is called."""
    return (
        f"{owner}.{name} cannot be assigned by a caller, who has no part of the object's state:"
        " call an update that sets it, on all replicas"
    )


def connection_of(replicated: object) -> GroupConnection:
    """Give what stands behind an object: the client, and its session."""
    found = vars(replicated).get("_RemoteObject__connection")
    assert isinstance(found, GroupConnection), "not an object that connect() gave"
    return found


def definition_of(replicated: object) -> Definition:
    """Give what is known of the class of an object that `connect` gave."""
    definition: Definition = vars(replicated)["_RemoteObject__definition"]
    return definition


def encode_plain(args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
    """Encode arguments of a method whose types only the replica knows; it checks them."""
    if kwargs:
        raise UnknownMethod("without the class, arguments are given by position")
    return msgspec.msgpack.encode(list(args))
