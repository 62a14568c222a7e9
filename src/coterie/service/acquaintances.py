"""Whom a process speaks with: its file says whom at first, its groups' histories say it later.

The turns of a process learn who belongs to its groups and where they are found; here the rest of
the process follows: links to other replicas, the secrets that are shared with them, and where the
clients' port says that the others take clients. The file is a seed and not the truth: who joins
need not be in it, and who was removed is spoken with no more, though it is still answered, so that
it finds out.

A newcomer whose secret is not here yet gets no link; the secret is looked for again and again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError
from coterie.kernel.views import ReplicaAddresses
from coterie.runtime.address import Address, parse_address
from coterie.runtime.events import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.runtime.process import LiveProcess
    from coterie.service.config import ClusterConfig
    from coterie.service.port import ClientPort
    from coterie.service.security import SecretWatch


def whereabouts_of(config: ClusterConfig, id: str) -> ReplicaAddresses:
    """Say where the file has a replica."""
    replica = config.replicas[id]
    return ReplicaAddresses(id, str(replica.peer_address), str(replica.client_address))


class Acquaintances:
    """Has links and ports of a process follow what its turns learn; *secrets* may be asked for."""

    def __init__(
        self,
        config: ClusterConfig,
        live: LiveProcess,
        port: ClientPort,
        secrets: SecretWatch | None,
    ) -> None:
        self._live = live
        self._port = port
        self._secrets = secrets
        self._in_file = frozenset(config.ids)
        self._seen = 0
        self.met: list[Callable[[], None]] = []
        """What is to be done when members have come or gone."""
        self._unreached: set[str] = set()
        """Peers to whom there could be no link yet."""
        live.process.whereabouts.update({id: whereabouts_of(config, id) for id in config.ids})
        if secrets is not None:
            secrets.looked.append(self._meet_unreached)

    def turn_ended(self) -> None:
        """Look whether the turn has changed whom we speak with, as hardly any does."""
        process = self._live.process
        if process.meetings == self._seen:
            return
        self._seen = process.meetings
        known = process.whereabouts
        for id in process.former:
            self._live.transport.only_answer(id)
        self._unreached = {*process.peers}
        self._meet_unreached()
        self._port.move(
            {id: known[id].clients for id in (process.id, *process.peers) if id in known}
        )
        for each in self.met:
            each()

    def _meet_unreached(self) -> None:
        """Seek those who can be found and have a secret, if one is asked for."""
        transport, known = self._live.transport, self._live.process.whereabouts
        if self._secrets is not None:
            joined = self._unreached - self._in_file
            if joined - {*self._secrets.joined}:
                self._secrets.joined = (*self._secrets.joined, *sorted(joined))
                self._secrets.look()  # which comes back here
                return
        found: dict[str, Address] = {}
        for id in sorted(self._unreached & known.keys()):
            secrets = transport.security.secrets
            if secrets is not None and id not in secrets:
                continue
            try:
                found[id] = parse_address(known[id].peers)
            except CoterieError as error:
                log(logging.WARNING, "member cannot be found", replica=id, reason=str(error))
        transport.meet(found)
        self._unreached -= found.keys()
