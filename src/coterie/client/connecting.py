"""`connect` and its kin: how a program gets hold of a replicated object.

    async with connect(Counter, "127.0.0.1:7001") as counter:
        total = await counter.add(3)

One address is enough: the client learns the others from the group. Several are good where the one
may be down when the program starts.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from coterie.client.errors import WRONG_CLASS, WRONG_GROUP, NotDone, NotWelcome
from coterie.client.group import GroupClient
from coterie.client.locations import find_location
from coterie.client.methods import Connection, RemoteObject, RemoteQuery, RemoteUpdate, encode_plain
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS
from coterie.objects import Kind, define
from coterie.objects.errors import UnknownMethod

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from coterie.client.messages import MethodReport, Report
    from coterie.client.session import Session
    from coterie.client.settings import ClientSettings
    from coterie.client.transacted import TransactedCalls

T = TypeVar("T")


@asynccontextmanager
async def open_client(  # noqa: PLR0913 -- all by name
    addresses: str | Sequence[str],
    *,
    group: str = "",
    secret: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
    spread: bool = True,
) -> AsyncIterator[GroupClient]:
    """Open a client of a group, of which further sessions can be had.

    A group that is not at any of the addresses is looked for by the location service there.
    """
    seeds = [addresses] if isinstance(addresses, str) else list(addresses)
    client = GroupClient(seeds, group=group, secret=secret, tls=tls, settings=settings)
    try:
        try:
            await client.open(spread=spread)
        except NotWelcome as unwelcome:
            if unwelcome.kind != WRONG_GROUP or not group:
                raise
            await client.close()
            found = await find_location(seeds, group, secret=secret, tls=tls, settings=settings)
            if found is None:
                raise
            seeds = found.addresses
            client = GroupClient(seeds, group=group, secret=secret, tls=tls, settings=settings)
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
    settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
) -> AbstractAsyncContextManager[type[T]]:
    """Connect to a replicated object of class *cls*; `async with` gives it.

    *group* is needed only where the replicas host several groups. Raises `NotWelcome` if the
    group, its class, the protocol or the secret is another, `NotDone` if no replica answers.
    """
    return cast(
        "AbstractAsyncContextManager[type[T]]",
        _connect(cls, addresses, group=group, secret=secret, tls=tls, settings=settings),
    )


@asynccontextmanager
async def _connect(  # noqa: PLR0913 -- all by name
    cls: type,
    addresses: str | Sequence[str],
    *,
    group: str,
    secret: bytes | None,
    tls: ssl.SSLContext | None,
    settings: ClientSettings,
) -> AsyncIterator[RemoteObject]:
    definition = define(cls, may_wait=True)
    async with open_client(
        addresses, group=group, secret=secret, tls=tls, settings=settings
    ) as client:
        assert client.welcome is not None
        if client.welcome.class_name != definition.name:
            raise NotWelcome(
                WRONG_CLASS,
                f"the group {client.group!r} replicates {client.welcome.class_name},"
                f" not {definition.name}",
            )
        async with _session(client, secret, tls) as session:
            await session.open()
            yield RemoteObject(Connection(client, session), definition)


@asynccontextmanager
async def _session(
    client: GroupClient, secret: bytes | None, tls: ssl.SSLContext | None
) -> AsyncIterator[Session | TransactedCalls]:
    """Give what calls are made in, by the kind of the group."""
    assert client.welcome is not None
    if client.welcome.engine != "vsr":
        yield client.session()
        return
    # Only who needs them imports the engine and its transactions.
    from coterie.client.actor import Actor  # noqa: PLC0415
    from coterie.client.transacted import TransactedCalls  # noqa: PLC0415

    actor = Actor(secret=secret, tls=tls, settings=client.settings)
    actor.join(client.welcome)
    calls = TransactedCalls(client, actor)
    try:
        yield calls
    finally:
        calls.close()
        await actor.close()


class UntypedObject:
    """An object whose class only its replicas know; they describe it.

    Arguments are given by position and checked by the replica; answers are plain values: numbers,
    strings, lists, dictionaries.
    """

    def __init__(self, connection: Connection, report: Report) -> None:
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
        is_update = self.describe(name).kind == Kind.UPDATE.value
        make = RemoteUpdate if is_update else RemoteQuery
        return make(self.connection, name, encode_plain, msgspec.msgpack.decode)


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
        async with _session(client, secret, tls) as session:
            yield UntypedObject(Connection(client, session), report)


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
