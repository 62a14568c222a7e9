"""The object as its caller sees it: its methods, to be awaited.

`coterie.objects.faces` has these shapes for type checkers. A method is made once and kept, so a
call costs a look-up, the check of its arguments, and a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from coterie.objects import Kind
from coterie.objects.errors import UnknownMethod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from coterie.client.group import GroupClient
    from coterie.client.session import Session
    from coterie.client.transacted import TransactedCalls
    from coterie.kernel.views import Viewstamp
    from coterie.objects import Definition
    from coterie.objects.faces import LevelName

BATCH_BYTES_MAX = 128 << 10
"""What the arguments of one batch may weigh together, unless it has one call only."""


class Connection:
    """What stands behind an object: the client, and the session in which it is called.

    Where the group takes transactions, the session makes one of each call, queries included.
    """

    def __init__(self, client: GroupClient, session: Session | TransactedCalls) -> None:
        self.client = client
        self.session = session
        self.query = getattr(session, "query", client.query)


class RemoteUpdate:
    """An update, to be called."""

    __slots__ = ("_connection", "_deadline", "_decode", "_encode", "_majority", "_name")

    def __init__(  # noqa: PLR0913 -- made in one place
        self,
        connection: Connection,
        name: str,
        encode: Callable[[Sequence[object], Mapping[str, object]], bytes],
        decode: Callable[[bytes], object],
        *,
        deadline: float | None = None,
        majority: bool = False,
    ) -> None:
        self._connection = connection
        self._name = name
        self._encode = encode
        self._decode = decode
        self._deadline = deadline
        self._majority = majority

    def __call__(self, *args: object, **kwargs: object) -> Awaitable[Any]:
        """Call it; the answer is to be awaited."""
        return self._connection.session.call(
            self._name,
            self._encode(args, kwargs),
            self._decode,
            deadline=self._deadline,
            majority=self._majority,
        )

    def detailed(self, *args: object, **kwargs: object) -> Awaitable[Any]:
        """Call it, and get a `Result`: the answer, where it was executed, and what it claims."""
        return self._connection.session.call(
            self._name,
            self._encode(args, kwargs),
            self._decode,
            deadline=self._deadline,
            majority=self._majority,
            is_detailed=True,
        )

    async def many(self, calls: Iterable[Sequence[object]]) -> Sequence[Any]:
        """Make many calls, each a sequence of arguments, packed; give their answers in order.

        Where a call did not end well its exception stands in place of the answer.
        """
        session = self._connection.session
        encoded = [self._encode(call, {}) for call in calls]
        parts = [
            session.call_many(self._name, part, self._decode, deadline=self._deadline)
            for part in _parts(encoded, session.batch_max)
        ]
        results: list[Any] = []
        for part in parts:
            results += await part  # type: ignore[arg-type]
        return results

    def options(self, *, deadline: float | None = None, majority: bool = False) -> RemoteUpdate:
        """Give the same method with another deadline (seconds), or asking a majority.

        With *majority* an optimistic answer is held back until a majority of the replicas have
        given it with the same viewstamp, which makes it authoritative.
        """
        return RemoteUpdate(
            self._connection,
            self._name,
            self._encode,
            self._decode,
            deadline=deadline,
            majority=majority,
        )


class RemoteQuery:
    """A query, to be called."""

    __slots__ = (
        "_connection",
        "_deadline",
        "_decode",
        "_encode",
        "_level",
        "_name",
        "_not_before",
    )

    def __init__(  # noqa: PLR0913 -- made in one place
        self,
        connection: Connection,
        name: str,
        encode: Callable[[Sequence[object], Mapping[str, object]], bytes],
        decode: Callable[[bytes], object],
        *,
        deadline: float | None = None,
        level: LevelName = "consistent",
        not_before: Viewstamp | None = None,
    ) -> None:
        self._connection = connection
        self._name = name
        self._encode = encode
        self._decode = decode
        self._deadline = deadline
        self._level = level
        self._not_before = not_before

    def __call__(self, *args: object, **kwargs: object) -> Awaitable[Any]:
        """Call it; the answer is to be awaited."""
        return self._ask(args, kwargs, is_detailed=False)

    def detailed(self, *args: object, **kwargs: object) -> Awaitable[Any]:
        """Call it, and get a `Result`: the answer, and which state it was given from."""
        return self._ask(args, kwargs, is_detailed=True)

    def _ask(
        self, args: Sequence[object], kwargs: Mapping[str, object], *, is_detailed: bool
    ) -> Awaitable[Any]:
        return self._connection.query(
            self._name,
            self._encode(args, kwargs),
            self._decode,
            level=self._level,
            not_before=self._not_before,
            deadline=self._deadline,
            is_detailed=is_detailed,
        )

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
            deadline=deadline,
            level=level,
            not_before=not_before,
        )


class RemoteObject:
    """An object of a known class; its attributes are the methods of the class."""

    def __init__(self, connection: Connection, definition: Definition) -> None:
        self.__connection = connection
        self.__definition = definition

    def __getattr__(self, name: str) -> RemoteUpdate | RemoteQuery:
        try:
            method = self.__definition.method(name)
        except UnknownMethod as error:
            # What Python itself looks for, such as __deepcopy__, is simply not there.
            raise (AttributeError(name) if name.startswith("__") else error) from None
        make = RemoteUpdate if method.kind is Kind.UPDATE else RemoteQuery
        made = make(self.__connection, name, method.encode, method.decode_result)
        self.__dict__[name] = made
        return made

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


def connection_of(replicated: object) -> Connection:
    """Give what stands behind an object: the client, and its session."""
    found = vars(replicated).get("_RemoteObject__connection")
    assert isinstance(found, Connection), "not an object that connect() gave"
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
