"""A client of transactions, as the cohorts see it: a process of its own (**vsr** 3.5).

It runs the same `coterie.vsr.commit.client.Client` that the simulator runs, in turns, on this
program's event loop; its frames go to the ports at which the replicas take clients. Nobody watches
it: a coordinator that hears nothing of it asks, and it answers as long as the program lives.
"""

from __future__ import annotations

import asyncio
import secrets
from random import Random
from typing import TYPE_CHECKING

from coterie.client.sessions.vsr.transport import PortTransport
from coterie.kernel.clock import seconds
from coterie.kernel.configuration import addresses_of
from coterie.kernel.errors import CoterieError, FrameError
from coterie.kernel.layers import Context, Layer
from coterie.kernel.process import Process
from coterie.kernel.replica import Replica
from coterie.kernel.settings import Settings
from coterie.kernel.views import Configuration, Member
from coterie.kernel.wire import Heartbeat, decode_body
from coterie.protocol.messages import Peer, guest_prefix
from coterie.runtime.driver import Driver
from coterie.runtime.recorder import NoRecorder
from coterie.transactional.face import Turns
from coterie.vsr import DEFAULT_VSR_SETTINGS, VsrSettings
from coterie.vsr.commit.client import TransactionClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from coterie.client.access import Access
    from coterie.client.settings import ClientSettings
    from coterie.kernel.clock import Instant
    from coterie.objects import Definition
    from coterie.protocol.messages import Welcome

_SETTINGS = Settings(heartbeat_interval=seconds(3600), frame_bytes_max=2 << 20)
"""There is nobody to send a heartbeat to, and ports take smaller frames than replicas."""
_NOBODY = Heartbeat(())


class _WatchesNobody:
    """The failure detector of a process without peers: primaries are found by asking."""

    def start(self, now: Instant) -> None:
        pass

    def heard(self, peer: str, incarnation: int, now: Instant) -> bool:  # noqa: ARG002
        return True

    def heartbeat(self, peer: str, heartbeat: Heartbeat, now: Instant) -> None:
        pass

    def refused(self, peer: str) -> None:
        pass

    def watch(self, peers: Sequence[str]) -> None:
        pass

    def tick(self, now: Instant) -> Heartbeat:  # noqa: ARG002
        return _NOBODY

    def changes(self) -> tuple[bool, list[str]]:
        return False, []

    def reaches(self, peer: str) -> bool:  # noqa: ARG002
        return False

    def in_touch(self, one: str, other: str) -> bool:  # noqa: ARG002
        return False


class TransactionProcess:
    """One client of transactions over the groups of one deployment."""

    def __init__(
        self,
        access: Access,
        settings: ClientSettings,
        vsr_settings: VsrSettings = DEFAULT_VSR_SETTINGS,
        owner: int = 0,
    ) -> None:
        self.cluster = ""
        self.definitions: dict[str, Definition] = {}
        self._directory: dict[str, Configuration] = {}
        name = guest_prefix(owner) + secrets.token_hex(8)
        self._process = process = Process(
            id=name, incarnation=1, peers=(), detector=_WatchesNobody(), settings=_SETTINGS
        )
        process.guest_hears = self._hear_of
        context = Context(
            group=name,
            me=Member(name, 1),
            configuration=Configuration(1, (name,)),
            settings=_SETTINGS,
            random=Random(),  # noqa: S311 -- protects nothing
            surroundings=process,
            recording=False,
        )
        client = TransactionClient(context, self._directory, vsr_settings)
        process.host(Replica(context, Layer(context), [client], client))
        self._driver = Driver(process, NoRecorder(), asyncio.get_running_loop())
        self._transport = PortTransport(self._receive, access, settings)
        self._driver.start(self._transport)
        self.turns = Turns(client, self._driver.call, self.definitions)

    def join(self, welcome: Welcome, definition: Definition | None = None) -> None:
        """Let transactions be over a group; raises `CoterieError` if it is of another cluster."""
        if self.cluster not in {"", welcome.cluster}:
            raise CoterieError(
                f"the group {welcome.group!r} belongs to the cluster {welcome.cluster!r}, and the "
                f"others to {self.cluster!r}: a transaction is over groups of one cluster"
            )
        self.cluster = welcome.cluster
        members = tuple(peer.id for peer in welcome.peers)
        self._directory[welcome.group] = Configuration(1, members)
        for member in members:
            self._process.admit(member)
        self._transport.learn(welcome.group, welcome.peers)
        if definition is not None:
            self.definitions[welcome.group] = definition

    def _hear_of(self, group: str, configuration: Configuration) -> None:
        """Learn that the members of a group have changed: find those who have come."""
        found = addresses_of(configuration)
        self._transport.learn(group, [Peer(each.id, each.clients, False) for each in found])  # noqa: FBT003
        for id in configuration.everyone:
            self._process.admit(id)

    async def close(self) -> None:
        """End: transactions in progress are aborted by their coordinators."""
        self.turns.close()
        self._driver.stop()
        await self._transport.close()

    def _receive(self, replica: str, body: msgspec.Raw) -> None:
        try:
            frame = decode_body(body)
        except FrameError:
            return  # as if it had been lost
        if frame.process == replica:
            self._driver.call(lambda: self._process.guest_said(frame))
