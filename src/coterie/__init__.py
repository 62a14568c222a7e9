"""Coterie: replication for Python.

A coterie is a set of quorums that all meet each other. This package makes Python objects highly
available: a class runs as a group of replicas that behaves as one object through crashes and
network partitions. `docs/architecture.md` shows how the folders of this package fit together.
"""

__version__: str

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """Look up the version only when somebody asks: the look-up is slower than all else here."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415 - see above

    return version(__name__)
