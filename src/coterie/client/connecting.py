"""`connect` and its kin: how a program gets hold of a replicated object.

    async with connect(Counter, "127.0.0.1:7001") as counter:
        total = await counter.add(3)

One address is enough: the client learns the others from the group. Several are good where the one
may be down when the program starts.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, cast

from coterie.client.access import find_access
from coterie.client.errors import NotDone, NotWelcome
from coterie.client.group import GroupClient
from coterie.client.locating import find_location
from coterie.client.methods import (
    GroupConnection,
    RemoteObject,
    RemoteQuery,
    RemoteUpdate,
    encode_plain,
)
from coterie.client.sessions import open_calls
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS
from coterie.kernel.decoding import decode_any
from coterie.objects import MethodKind, define
from coterie.objects.errors import NotAllowed, UnknownMethod
from coterie.protocol.kinds import WRONG_CLASS, WRONG_GROUP
from coterie.runtime.network import TCP

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from coterie.client.sessions import CallSession
    from coterie.client.settings import ClientSettings
    from coterie.protocol.messages import MethodReport, Report
    from coterie.runtime.network import Network

T = TypeVar("T")


@asynccontextmanager
async def open_client(  # noqa: PLR0913 -- all by name
    addresses: str | Sequence[str],
    *,
    group: str = "",
    secret: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    network: Network = TCP,
    settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
    spread: bool = True,
) -> AsyncIterator[GroupClient]:
    """Open a client of a group, of which further sessions can be had.

    A group that is not at any of the addresses is looked for by the location service there.
    """
    seeds = [addresses] if isinstance(addresses, str) else list(addresses)
    access = find_access(seeds, secret=secret, tls=tls, network=network)
    client = GroupClient(seeds, group=group, access=access, settings=settings)
    try:
        try:
            await client.open(spread=spread)
        except NotWelcome as unwelcome:
            if unwelcome.kind != WRONG_GROUP or not group:
                raise
            await client.close()
            found = await find_location(seeds, group, access=access, settings=settings)
            if found is None:
                raise
            client = GroupClient(found.addresses, group=group, access=access, settings=settings)
            await client.open(spread=spread)
        yield client
    finally:
        await client.close()


def connect(  # noqa: PLR0913 -- all by name
    cls: type[T],
    addresses: str | Sequence[str],
    *,
    group: str = "",
    secret: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    network: Network = TCP,
    settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
) -> AbstractAsyncContextManager[type[T]]:
    """Connect to a replicated object of class *cls*; `async with` gives it.

    *group* is needed only where the replicas host several groups. Raises `NotWelcome` if the
    group, its class, the protocol or the secret is another, `NotDone` if no replica answers.
    """
    opening = open_client(
        addresses, group=group, secret=secret, tls=tls, network=network, settings=settings
    )
    return cast("AbstractAsyncContextManager[type[T]]", connect_object(cls, opening))


@asynccontextmanager
async def connect_object(
    cls: type,
    opening: AbstractAsyncContextManager[GroupClient],
    open_calls: Callable[[GroupClient], AbstractAsyncContextManager[CallSession]] = open_calls,
) -> AsyncIterator[RemoteObject]:
    """Connect to an object through the client that *opening* gives; calls are made in *open_calls*.

    `connect` is the way to write it.
    """
    definition = define(cls, may_wait=True)
    async with opening as client:
        assert client.welcome is not None
        if client.welcome.class_name != definition.name:
            raise NotWelcome(
                WRONG_CLASS,
                f"the group {client.group!r} replicates {client.welcome.class_name},"
                f" not {definition.name}",
            )
        async with open_calls(client) as calls:
            with suppress(NotAllowed):  # who only reads needs no session, and may have none
                await calls.open()
            yield RemoteObject(GroupConnection(client, calls), definition)


class UntypedObject:
    """An object whose class only its replicas know; they describe it.

    Arguments are given by position and checked by the replica; answers are plain values: numbers,
    strings, lists, dictionaries.
    """

    def __init__(self, connection: GroupConnection, report: Report) -> None:
        self.connection = connection
        self.report = report
        """What the replica said of its class and itself."""

    def describe(self, name: str) -> MethodReport:
        """Describe a method; raises `UnknownMethod`."""
        for method in self.report.methods:
            if method.name == name:
                return method
        known = ", ".join(method.name for method in self.report.methods) or "none"
        raise UnknownMethod(f"{self.report.class_name} has no method {name!r}; it has {known}")

    def method(self, name: str) -> RemoteUpdate | RemoteQuery:
        """Give a method to call; raises `UnknownMethod`."""
        is_update = self.describe(name).kind == MethodKind.UPDATE.value
        make = RemoteUpdate if is_update else RemoteQuery
        return make(self.connection, name, encode_plain, decode_any)


@asynccontextmanager
async def connect_untyped(
    addresses: str | Sequence[str],
    *,
    group: str = "",
    secret: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
) -> AsyncIterator[UntypedObject]:
    """Connect to a replicated object without having its class; its replicas describe it."""
    async with open_client(
        addresses, group=group, secret=secret, tls=tls, settings=settings
    ) as client:
        report = await client.report()
        async with open_calls(client) as session:
            yield UntypedObject(GroupConnection(client, session), report)


async def report_of(
    address: str,
    *,
    group: str = "",
    secret: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
) -> Report:
    """Have the replica at an address report on itself; raises as `connect` does."""
    async with open_client(
        address, group=group, secret=secret, tls=tls, settings=settings, spread=False
    ) as client:
        assert client.welcome is not None
        report = await client.report()
        if report.replica != client.welcome.replica:
            raise NotDone(f"the replica at {address} does not answer")
        return report
