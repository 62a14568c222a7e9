"""Coterie: replication for Python.

A coterie is a set of quorums that all meet each other. This package makes Python objects highly
available: a class runs as a group of replicas that behaves as one object through crashes and
network partitions. `docs/internals/architecture.md` shows how the folders of this package fit
together.

What a program needs is here, by one import:

| | |
|---|---|
| to write a class | `update`, `query`; inside its methods `now`, `random`, `new_id` |
| to run a group in this process | `local`, `group_of`; several, with transactions, `local_groups` |
| to call a group | `connect`, `connect_blocking` |
| to call several as one | `transaction`, `outcome_of`, and both with `_blocking` |
| to catch | `CoterieError` for all; `Refused` for what surely had no effect; each by its name |
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.client import (
        Changed,
        MethodFailed,
        NotDone,
        NotWelcome,
        OutcomeUnknown,
        connect,
        connect_blocking,
    )
    from coterie.client.sessions.vsr.blocking import outcome_of_blocking, transaction_blocking
    from coterie.client.sessions.vsr.transactions import outcome_of, transaction
    from coterie.kernel.errors import BacklogFull, CoterieError, Refused, StackError
    from coterie.local_group import group_of, local
    from coterie.local_transactions import local_groups
    from coterie.objects import (
        BadArguments,
        BadResult,
        CommandTooLarge,
        NotAllowed,
        NotInAnUpdate,
        NotReplicable,
        ResultTooLarge,
        StateNotEncodable,
        UnknownMethod,
        new_id,
        now,
        query,
        random,
        update,
    )
    from coterie.runtime.address import AddressError
    from coterie.runtime.security import SecurityError
    from coterie.transactional import PartAborted, TransactionAborted, TransactionUnknown
    from coterie.vsr.calls.primary_requests import UnknownGroup
    from coterie.vsr.commit.client import TransactionOver

__version__: str

__all__ = [
    "AddressError",
    "BacklogFull",
    "BadArguments",
    "BadResult",
    "Changed",
    "CommandTooLarge",
    "CoterieError",
    "MethodFailed",
    "NotAllowed",
    "NotDone",
    "NotInAnUpdate",
    "NotReplicable",
    "NotWelcome",
    "OutcomeUnknown",
    "PartAborted",
    "Refused",
    "ResultTooLarge",
    "SecurityError",
    "StackError",
    "StateNotEncodable",
    "TransactionAborted",
    "TransactionOver",
    "TransactionUnknown",
    "UnknownGroup",
    "UnknownMethod",
    "__version__",
    "connect",
    "connect_blocking",
    "group_of",
    "local",
    "local_groups",
    "new_id",
    "now",
    "outcome_of",
    "outcome_of_blocking",
    "query",
    "random",
    "transaction",
    "transaction_blocking",
    "update",
]

_FROM = {
    "coterie.client": "Changed MethodFailed NotDone NotWelcome OutcomeUnknown connect"
    " connect_blocking",
    "coterie.client.sessions.vsr.blocking": "outcome_of_blocking transaction_blocking",
    "coterie.client.sessions.vsr.transactions": "outcome_of transaction",
    "coterie.kernel.errors": "BacklogFull CoterieError Refused StackError",
    "coterie.local_group": "group_of local",
    "coterie.local_transactions": "local_groups",
    "coterie.objects": "BadArguments BadResult CommandTooLarge NotAllowed NotInAnUpdate"
    " NotReplicable ResultTooLarge StateNotEncodable UnknownMethod new_id now query random update",
    "coterie.runtime.address": "AddressError",
    "coterie.runtime.security": "SecurityError",
    "coterie.transactional": "PartAborted TransactionAborted TransactionUnknown",
    "coterie.vsr.calls.primary_requests": "UnknownGroup",
    "coterie.vsr.commit.client": "TransactionOver",
}
_WHERE = {name: module for module, names in _FROM.items() for name in names.split()}


if not TYPE_CHECKING:  # it would tell the type checker that every name exists

    def __getattr__(name: str) -> object:
        """Import a name only when somebody asks for it, so that the command line starts quickly."""
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 -- the look-up is slow

            return version(__name__)
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Kept, because methods of replicated objects ask for the time by this name at every call.
        found = globals()[name] = getattr(import_module(_WHERE[name]), name)
        return found


def __dir__() -> list[str]:
    """Tell what there is, although most of it has not been imported yet."""
    return sorted({*globals(), *__all__})
