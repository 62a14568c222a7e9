"""Coterie: replication for Python.

A coterie is a set of quorums that all meet each other. This package makes Python objects highly
available: a class runs as a group of replicas that behaves as one object through crashes and
network partitions. `docs/architecture.md` shows how the folders of this package fit together.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.client import connect, connect_blocking
    from coterie.client.transactions import outcome_of, transaction
    from coterie.locally import group_of, local
    from coterie.objects import query, update

__version__: str

__all__ = [
    "__version__",
    "connect",
    "connect_blocking",
    "group_of",
    "local",
    "outcome_of",
    "query",
    "transaction",
    "update",
]

_WHERE = {
    "connect": "coterie.client",
    "connect_blocking": "coterie.client",
    "group_of": "coterie.locally",
    "local": "coterie.locally",
    "outcome_of": "coterie.client.transactions",
    "query": "coterie.objects",
    "transaction": "coterie.client.transactions",
    "update": "coterie.objects",
}


def __getattr__(name: str) -> object:
    """Import what users need only when somebody asks, so that the command line starts quickly."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 -- the look-up is slow

        return version(__name__)
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 -- see above

    return getattr(import_module(_WHERE[name]), name)
