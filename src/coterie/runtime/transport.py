"""Frames over TCP: one connection for each pair of processes, shared by all groups.

Of two processes the one with the smaller id *dials* and the other listens, so that there is never
a choice between two connections. A process that has no connection to a peer it does not dial
*knocks* instead: it opens a connection, says hello, hears hello, and closes; the peer then dials
at once. Knocking is what makes two things quick:

- when the dialled process restarts, the dialler need not wait for the end of its pause;
- when the dialling process dies, the listener learns it by a refused connection, as the dialler
  does in the other case. A killed process is so suspected at once, without waiting for silence.

A connection opens with a greeting from each side (`coterie.protocol.hello`); the dialler speaks
first, and the link is up for each side when it has accepted the other's hello. A newer connection
of a peer replaces the older one; one of an earlier life of the peer is sent away.

A link that is up but silent is *half open*: the peer's heartbeats should come, so after a while
both sides close it, and the dialler dials again. A process that was itself paused could not read,
so it gives the peer that time back.

While a link is down, frames for it are dropped; while too much waits to be written to it, too.
Both are counted, and VSYNC repairs what was dropped. No exception of a peer's making leaves this
module: what arrives and makes no sense is counted, logged, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from random import Random
from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError, FrameError
from coterie.protocol.hello import Greeting, PeerFarewell, PeerHello, PeerProof
from coterie.protocol.proof import NONCE_BYTES, make_nonce, meeting_of_peers
from coterie.runtime.descriptors import FOR_PEERS
from coterie.runtime.events import EventLogger
from coterie.runtime.link import Connection, Link, Next
from coterie.runtime.listening import ListenTerms, TurnedAway
from coterie.runtime.marks import NO_MARKS, Marks
from coterie.runtime.network import TCP
from coterie.runtime.security import OPEN, Security
from coterie.runtime.settings import DEFAULT_TRANSPORT_SETTINGS, TransportSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coterie.kernel.views import ReplicaId
    from coterie.kernel.wire import Frame
    from coterie.runtime.address import Address
    from coterie.runtime.network import Listener, Network
    from coterie.runtime.port import Receiver


class ListenError(CoterieError):
    """The address to listen at cannot be used; says why."""


class TcpTransport:
    """The transport of one process; `async with` opens and closes everything.

    *peers* gives the address at which each peer can be reached. Frames and refusals go to
    *receiver*.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        *,
        id: ReplicaId,
        incarnation: int,
        cluster: str,
        listen: Address | socket.socket,
        peers: Mapping[ReplicaId, Address],
        receiver: Receiver,
        frame_bytes_max: int,
        settings: TransportSettings = DEFAULT_TRANSPORT_SETTINGS,
        security: Security = OPEN,
        network: Network = TCP,
        marks: Marks = NO_MARKS,
    ) -> None:
        if security.secrets is not None and not security.secrets.keys() >= peers.keys() - {id}:
            raise ValueError("there is a secret for each peer, or none is asked for")
        self.security = security
        self.marks = marks
        self.id = id
        self.incarnation = incarnation
        self.cluster = cluster
        self.settings = settings
        self.frame_bytes_max = frame_bytes_max
        self.loop = asyncio.get_running_loop()
        self.connections: dict[Connection, None] = {}
        self.links = {peer: Link(peer, peers[peer]) for peer in sorted(peers) if peer != id}
        self._listen = listen
        self._receiver = receiver
        self._events = EventLogger(process=id)
        self._random = Random()  # noqa: S311 -- spreads attempts in time, protects nothing
        self._network = network
        self._listener: Listener | None = None
        self._tasks: dict[ReplicaId, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._to_flush: list[Link] = []
        self._is_closing = False
        self._all_up = asyncio.Event()

    @property
    def counters(self) -> dict[str, int]:
        """What has happened so far; `docs/internals/runtime.md` explains each name."""
        return self._events.counters

    @property
    def address(self) -> Address:
        """Where this process listens, with the port that the system chose if it was 0."""
        assert self._listener is not None
        return self._listener.address

    def is_up(self, peer: ReplicaId) -> bool:
        """Say whether there is a connection to a peer at present."""
        return self.links[peer].connection is not None

    async def wait_all_up(self, seconds: float) -> None:
        """Wait until there is a connection to every peer, but not for long."""
        if not all(link.connection for link in self.links.values()):
            await _within(self._all_up, seconds)

    # ---- opening and closing

    async def open(self, tasks: asyncio.TaskGroup) -> None:
        """Listen, and begin to seek all peers; raise `ListenError` if listening is impossible."""
        await self._start_listening()
        self._group = tasks
        for link in self.links.values():
            self._seek_always(link)

    def meet(self, peers: Mapping[ReplicaId, Address]) -> None:
        """Seek these peers, too, from now on."""
        for peer in sorted(peers.keys() - {self.id}):
            link = self.links.get(peer)
            if link is None:
                link = self.links[peer] = Link(peer, peers[peer])
                self._seek_always(link)
            link.address = peers[peer]
            if link.is_former:
                link.is_former = False
                link.wake.set()

    def only_answer(self, peer: ReplicaId) -> None:
        """Let a former peer in, and dial it if it asks for that; seek it no more."""
        link = self.links.get(peer)
        if link is not None:
            link.is_former = True

    def part(self, peer: ReplicaId) -> None:
        """Have nothing more to do with a peer."""
        link = self.links.pop(peer, None)
        if link is None:
            return
        self._tasks.pop(peer).cancel()
        for connection in [each for each in self.connections if each.link is link]:
            connection.transport.abort()

    def _seek_always(self, link: Link) -> None:
        assert self._group is not None, "it is open"
        name = f"{self.id} seeks {link.peer}"
        self._tasks[link.peer] = self._group.create_task(self._keep(link), name=name)

    async def close(self) -> None:
        """Let the last frames leave, for a short while, and close everything."""
        self._is_closing = True
        for task in self._tasks.values():
            task.cancel()
        try:
            if self._listener is not None:
                await self._listener.close()
            ends = [connection.ended for connection in self.connections]
            for connection in list(self.connections):
                connection.transport.close()
            if ends:
                await asyncio.wait(ends, timeout=self.settings.close_timeout / 1e6)
        finally:
            for connection in list(self.connections):
                connection.transport.abort()

    async def _start_listening(self) -> None:
        def accept() -> Connection:
            return Connection(self)

        tls = self.security.tls
        admission = ListenTerms(
            tls=None if tls is None else lambda: tls.server,
            handshake_seconds=self.settings.hello_timeout / 1e6,
            room=lambda: self.settings.strangers_max - len(self._strangers()),
            turned_away=self._on_turned_away,
            descriptors_kept=FOR_PEERS,
        )
        try:
            self._listener = await self._network.listen(accept, self._listen, admission)
        except OSError as error:
            raise ListenError(f"cannot listen at {self._listen}: {_why(error)}") from error

    # ---- sending

    def send(self, destination: ReplicaId, frame: bytes) -> None:
        """Send one encoded frame; raise `FrameError` if it is too large for any peer to take."""
        self.multicast((destination,), frame)

    def multicast(self, destinations: Sequence[ReplicaId], frame: bytes) -> None:
        """Send the same frame to several peers."""
        if len(frame) > self.frame_bytes_max:
            raise FrameError(
                "size", f"a frame of {len(frame)} bytes is over the limit {self.frame_bytes_max}"
            )
        for destination in destinations:
            link = self.links.get(destination)
            if link is None:
                self._events.count("transport.frames_to_unknown_peer")
            elif link.connection is None:
                self._events.count("transport.frames_dropped_no_link")
            else:
                if not link.pending:
                    self._to_flush.append(link)
                link.pending.append(frame)

    def flush(self) -> None:
        """Write what was sent, with one write for each peer."""
        for link in self._to_flush:
            frames = link.pending
            link.pending = []
            connection = link.connection
            if connection is None:
                self._events.count("transport.frames_dropped_no_link", len(frames))
                continue
            transport = connection.transport
            if transport.get_write_buffer_size() > self.settings.queue_bytes_max:
                self._events.warn("queue full", peer=link.peer)
                self._events.count("transport.frames_dropped_queue_full", len(frames))
                continue
            transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        self._to_flush.clear()

    # ---- what connections report

    def on_accepted(self, connection: Connection) -> None:
        """Take a connection that somebody opened; it has to say hello first.

        Of too many who have not, the oldest goes: who means it does not take long.
        """
        if self._is_closing or not self.security.is_trusted(connection.transport):
            connection.transport.abort()
            return
        strangers = self._strangers()
        if len(strangers) > self.settings.strangers_max:
            self._on_turned_away(TurnedAway.NO_ROOM)
            del self.connections[strangers[0]]  # it is over, whenever we are told
            strangers[0].transport.abort()

    def _strangers(self) -> list[Connection]:
        """Give the connections that have not said hello, the oldest first."""
        return [known for known in self.connections if known.link is None]

    def _on_turned_away(self, why: TurnedAway) -> None:
        name = why.value.replace("_", " ")
        self._events.warn(name, counter=f"transport.{why.value}")

    def end_untrusted(self) -> None:
        """End connections that were let in for something that has been withdrawn since."""
        for connection in list(self.connections):
            security = self.security
            if security.is_trusted(connection.transport) and security.is_accepted(connection.shown):
                continue
            if not connection.transport.is_closing():
                self._events.warn(
                    "not trusted any more",
                    counter="transport.connections_withdrawn",
                    address=connection.address,
                )
            self.abort(connection)

    def on_greeting(self, connection: Connection, greeting: Greeting) -> Next:
        """Take a greeting of the other end; say what may follow it."""
        match greeting.says:
            case PeerFarewell(reason=reason, is_apart=is_apart):
                self._events.warn(
                    "sent away",
                    counter="transport.hellos_rejected_by_peer",
                    address=connection.address,
                    reason=reason,
                )
                connection.transport.close()
                if is_apart and connection.link is not None:
                    self.marks.sent_away(connection.link.peer, reason)
                return Next.NOTHING
            case PeerProof(proof=proof):
                return self._on_proof(connection, proof)
            case PeerHello() as hello:
                problem = self._problem_with(connection, greeting, hello)
                if problem:
                    return self._reject(connection, problem)
                apart = self.marks.why_not(greeting.process, hello.mark)
                if apart:
                    return self._reject(connection, apart, is_apart=True)
                if connection.link is None:
                    return self._on_dialler(connection, greeting, hello)
                return self._on_listener(connection, greeting, hello)

    def _on_dialler(self, connection: Connection, greeting: Greeting, hello: PeerHello) -> Next:
        """Answer somebody who dialled us; where a secret is needed, they have to show it next."""
        secret = self.security.secret_with(greeting.process)
        if secret is None and hello.nonce:
            # It would hang up on us; until then we would take the link for one that is up.
            return self._reject(connection, f"process {greeting.process!r} asks for a secret")
        if secret is None:
            connection.greet(PeerHello(self.cluster, greeting.process, mark=self.marks.mark))
            return self._welcome(connection, greeting, hello)
        if connection.unproven is not None or len(hello.nonce) != NONCE_BYTES:
            return self._reject(connection, "this cluster asks for a secret: give the process one")
        connection.nonce = make_nonce()
        meeting = meeting_of_peers(
            self.cluster,
            (greeting.process, greeting.incarnation, hello.nonce),
            (self.id, self.incarnation, connection.nonce),
        )
        connection.unproven = (greeting, meeting)
        proof = meeting.proof(secret, by_dialler=False)
        hello = PeerHello(
            self.cluster,
            greeting.process,
            nonce=connection.nonce,
            proof=proof,
            mark=self.marks.mark,
        )
        connection.greet(hello)
        return Next.GREETING

    def _on_proof(self, connection: Connection, proof: bytes) -> Next:
        """The dialler shows that it knows the secret."""
        if connection.unproven is None:
            return self._reject(connection, "a proof of a secret that nobody asked for")
        greeting, meeting = connection.unproven
        secrets = self.security.accepted_from(greeting.process)
        shown = meeting.which(secrets, proof, by_dialler=True)
        if shown is None:
            return self._reject(connection, f"process {greeting.process!r} has another secret")
        connection.shown = (greeting.process, shown)
        assert isinstance(greeting.says, PeerHello)
        # Meanwhile another connection may have brought a later life.
        problem = self._problem_with(connection, greeting, greeting.says)
        if problem:
            return self._reject(connection, problem)
        return self._welcome(connection, greeting, greeting.says)

    def _on_listener(self, connection: Connection, greeting: Greeting, hello: PeerHello) -> Next:
        """Hear the answer of somebody we dialled."""
        secrets = self.security.accepted_from(greeting.process)
        if secrets:
            meeting = meeting_of_peers(
                self.cluster,
                (self.id, self.incarnation, connection.nonce),
                (greeting.process, greeting.incarnation, hello.nonce),
            )
            # What it has shown it knows, whichever of ours is the newest.
            shown = meeting.which(secrets, hello.proof, by_dialler=False)
            if shown is None:
                return self._reject(
                    connection, f"process {greeting.process!r} does not know the secret"
                )
            connection.shown = (greeting.process, shown)
            connection.greet(PeerProof(meeting.proof(shown, by_dialler=True)))
        return self._welcome(connection, greeting, hello)

    def _reject(self, connection: Connection, problem: str, *, is_apart: bool = False) -> Next:
        self._events.warn(
            "hello rejected",
            counter="transport.hellos_rejected",
            address=connection.address,
            reason=problem,
        )
        if connection.link is None:
            connection.greet(PeerFarewell(problem, is_apart))
        connection.transport.close()
        return Next.NOTHING

    def _welcome(self, connection: Connection, greeting: Greeting, hello: PeerHello) -> Next:
        """Both ends are who they should be: use the connection, or note that somebody knocked.

        By which mark the other end is known from now on is on disk before.
        """
        link = self.links[greeting.process]
        apart = self.marks.why_not(greeting.process, hello.mark)
        if apart:  # another connection brought the other one meanwhile
            return self._reject(connection, apart, is_apart=True)
        try:
            self.marks.met(greeting.process, hello.mark)
        except OSError as error:
            return self._reject(connection, f"its mark cannot be kept: {_why(error)}")
        if connection.knocks or hello.knocks:
            if connection.link is None:
                self._on_knock(link, greeting.incarnation)
            connection.transport.close()
            return Next.NOTHING
        connection.link = link
        self._adopt(link, connection, greeting.incarnation)
        return Next.FRAMES

    def _problem_with(self, connection: Connection, greeting: Greeting, hello: PeerHello) -> str:
        """Say why a hello cannot be accepted, or nothing."""
        process, incarnation, _ = greeting
        link = self.links.get(process)
        problem = ""
        if hello.cluster != self.cluster:
            problem = f"this is cluster {self.cluster!r}, not {hello.cluster!r}"
        elif hello.to != self.id:
            problem = f"this is process {self.id!r}, not {hello.to!r}: check the addresses"
        elif link is None:
            problem = f"process {process!r} is no peer of {self.id!r}"
        elif connection.link is not None and connection.link is not link:
            expected = connection.link.peer
            problem = f"process {process!r} answers where {expected!r} should: check the addresses"
        elif incarnation < link.incarnation:
            problem = (
                f"a later life of {process!r} ({link.incarnation} after {incarnation}) is known: "
                "perhaps two processes bear one id"
            )
        elif connection.link is None and not hello.knocks and process > self.id:
            problem = f"process {process!r} must wait to be dialled by {self.id!r}"
        return problem or self.security.why_not(process, connection.certificate)

    def _on_knock(self, link: Link, incarnation: int) -> None:
        """A peer asks to be dialled. Only a new life of it proves that our link is dead."""
        if link.connection is not None and incarnation > link.incarnation:
            self.abort(link.connection)
        link.wake.set()

    def _adopt(self, link: Link, connection: Connection, incarnation: int) -> None:
        """Make a connection the link to its peer; the newest one is the one in use there."""
        if link.connection is not None:
            self._events.count("transport.links_replaced")
            self.abort(link.connection)
        link.connection = connection
        link.incarnation = incarnation
        link.was_up = True
        link.up_since = self.loop.time()
        link.lost.clear()
        link.wake.set()
        connection.settle()
        self._events.count("transport.links_up")
        if all(each.connection or each.is_former for each in self.links.values()):
            self._all_up.set()

    def on_greeting_late(self, connection: Connection) -> None:
        """Close a connection whose other end has said nothing sensible in time."""
        self._events.warn(
            "no hello", counter="transport.hellos_timed_out", address=connection.address
        )
        connection.transport.abort()

    def on_bad_frame(self, connection: Connection, error: FrameError) -> None:
        """Count and log what arrived and is no frame of ours."""
        self._events.warn(
            "bad frame",
            counter=f"transport.frames_dropped_{error.kind}",
            address=connection.address,
            reason=str(error),
        )

    def on_frame(self, connection: Connection, frame: Frame, *, alone: bool = False) -> None:
        """Pass a frame on, if its sender is who said hello on this connection."""
        link = connection.link
        assert link is not None
        if frame.process != link.peer or frame.incarnation != link.incarnation:
            # A life that nobody has lived would make strangers of all frames after this one.
            name = f"{frame.process!r} (life {frame.incarnation})"
            self._events.warn(
                "bad frame",
                counter="transport.frames_dropped_sender",
                address=connection.address,
                reason=f"process {link.peer!r} sent a frame in the name of {name}",
            )
            return
        self._receiver.frame_arrived(frame, alone=alone)

    def on_lost(self, connection: Connection) -> None:
        """Note the end of a connection."""
        self.connections.pop(connection, None)
        self._detach(connection)

    def abort(self, connection: Connection) -> None:
        """End a connection at once; the loop will tell us later, but nobody should use it."""
        self._detach(connection)
        connection.transport.abort()

    def _detach(self, connection: Connection) -> None:
        """Let the link of a connection be down, if it is the one in use; its task goes on."""
        link = connection.link
        if link is not None and link.connection is connection:
            link.connection = None
            link.pending = []
            link.lost.set()
            self._events.count("transport.links_lost")

    # ---- one task for each peer

    async def _keep(self, link: Link) -> None:
        """Seek the peer while the link is down, and watch the link while it is up."""
        failures = 0
        while True:
            if link.connection is not None:
                await self._watch(link)
                # A peer that hangs up right after its hello must not be dialled in a circle.
                lasted = self.loop.time() - link.up_since
                if lasted * 1e6 > self.settings.retry_max:
                    failures = 0
                link.wake.clear()
            if link.is_former:
                await link.wake.wait()
            elif failures:
                await _within(link.wake, self._pause(failures))
            link.wake.clear()
            if link.connection is None:
                await self._seek(link)
            failures += 1

    def _pause(self, failures: int) -> float:
        """Give the seconds to wait after so many failures in a row."""
        settings = self.settings
        pause = min(settings.retry_first << min(failures - 1, 20), settings.retry_max)
        return pause * self._random.uniform(0.5, 1.5) / 1e6

    async def _watch(self, link: Link) -> None:
        """Return when the link is lost; lose it when it is silent for too long."""
        silence_max = self.settings.silence_max / 1e6
        interval = silence_max / 4
        while (connection := link.connection) is not None:
            due = self.loop.time() + interval
            if await _within(link.lost, interval):
                return
            now = self.loop.time()
            if now - due > interval:
                # We were paused ourselves, and what came meanwhile is not read yet.
                connection.read_at = max(connection.read_at, now - silence_max / 2)
            elif now - connection.read_at > silence_max:
                self._events.warn("silent", counter="transport.links_silent", peer=link.peer)
                self.abort(connection)

    async def _seek(self, link: Link) -> None:
        """Try once to get in touch: dial, or knock to be dialled."""
        knocks = self.id > link.peer

        def make() -> Connection:
            return Connection(self, link, knocks=knocks)

        self._events.count("transport.knocks" if knocks else "transport.dials")
        tls = None if self.security.tls is None else self.security.tls.client
        try:
            async with asyncio.timeout(self.settings.connect_timeout / 1e6):
                connection = await self._network.connect(make, link.address, tls=tls)
        except ConnectionRefusedError:
            self._events.count("transport.dials_refused")
            if link.was_up and link.connection is None:
                link.was_up = False
                self._receiver.peer_refused(link.peer)
            return
        except TimeoutError:
            self._events.count("transport.dials_timed_out")
            return
        except OSError as error:
            self._events.warn(
                "cannot dial",
                counter="transport.dials_failed",
                peer=link.peer,
                address=str(link.address),
                reason=_why(error),
            )
            return
        # Up, or over: a greeting that does not come ends the connection by its own deadline.
        await connection.settled


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but not for long; say whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _why(error: OSError) -> str:
    """Say in words what the system refuses, for the cases that users meet."""
    match error:
        case socket.gaierror():
            return "the host has no address"
        case OSError(errno=errno.EADDRINUSE):
            return "the port is taken by another program"
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "the host is not this machine"
        case OSError(errno=errno.EACCES):
            return "the port is reserved for the system's own services"
        case _:
            return (error.strerror or str(error)).lower()
