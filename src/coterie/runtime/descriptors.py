"""How many files and connections a process may have open, and how many are kept back.

A process that has no descriptor left cannot begin the next segment of its journal, and a replica
that cannot write its journal has to stop. So connections from outside never get the last ones:
the system numbers descriptors from the lowest that is free, so the number of a new connection says
how many are in use, and one whose number is too high is closed at once.
"""

from __future__ import annotations

import contextlib
import resource
import sys

FOR_CLIENTS = 128
"""So many descriptors are kept free of clients; of few descriptors, a quarter."""
FOR_PEERS = 64
"""So many are kept free of replicas as well: a crowd of clients keeps no replica out."""
_WANTED = 1 << 16
_SHARE = 4


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as the system allows it, up to a sensible number.

    Called by the commands that run replicas, never by importing the library.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # what there is will have to do
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptors_for(kept: int) -> int:
    """Give the number below which a connection's descriptor must be, if *kept* stay free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - min(kept, limit * kept // (FOR_CLIENTS * _SHARE))
