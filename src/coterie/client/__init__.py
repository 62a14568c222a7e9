"""Calling a replicated object over the network: `docs/clients.md`."""

from coterie.client.blocking import BlockingResult, connect_blocking, detailed, options
from coterie.client.connecting import (
    UntypedObject,
    connect,
    connect_untyped,
    open_client,
    report_of,
)
from coterie.client.errors import MethodFailed, NotDone, NotWelcome, OutcomeUnknown
from coterie.client.group import GroupClient
from coterie.client.messages import MethodReport, Parameter, Peer, Report
from coterie.client.methods import Connection, connection_of
from coterie.client.results import Result
from coterie.client.session import Session
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS, ClientSettings

__all__ = [
    "DEFAULT_CLIENT_SETTINGS",
    "BlockingResult",
    "ClientSettings",
    "Connection",
    "GroupClient",
    "MethodFailed",
    "MethodReport",
    "NotDone",
    "NotWelcome",
    "OutcomeUnknown",
    "Parameter",
    "Peer",
    "Report",
    "Result",
    "Session",
    "UntypedObject",
    "connect",
    "connect_blocking",
    "connect_untyped",
    "connection_of",
    "detailed",
    "open_client",
    "options",
    "report_of",
]
