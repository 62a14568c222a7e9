"""Calling a replicated object over the network; `docs/use/clients.md` is its page."""

from coterie.client.blocking import connect_blocking, detailed, options
from coterie.client.connecting import (
    UntypedObject,
    connect,
    connect_untyped,
    open_client,
    report_of,
)
from coterie.client.errors import Changed, MethodFailed, NotDone, NotWelcome, OutcomeUnknown
from coterie.client.group import GroupClient
from coterie.client.methods import GroupConnection, connection_of
from coterie.client.results import Result
from coterie.client.sessions.stack import ClientSession
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS, ClientSettings
from coterie.protocol.messages import MethodReport, Parameter, Peer, Report

__all__ = [
    "DEFAULT_CLIENT_SETTINGS",
    "Changed",
    "ClientSession",
    "ClientSettings",
    "GroupClient",
    "GroupConnection",
    "MethodFailed",
    "MethodReport",
    "NotDone",
    "NotWelcome",
    "OutcomeUnknown",
    "Parameter",
    "Peer",
    "Report",
    "Result",
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
