"""Objects with the paper's own interface, served (**objects** section 7, `coterie.objects.paper`).

    coterie serve value=examples/replicated_value.py:ValueReplica

The service makes one `ObjectReplica` in each process and has it join its group; the stack decides
whether that is optimistic. A client's request is handed to the object at the replica it was sent
to, inside a turn, and what the object replies goes to every connection of that client here. All
else is as with any object on a stack: order, journal, recovery, state transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.assembly import make_context
from coterie.kernel.errors import FrameError
from coterie.kernel.records import AskedCall
from coterie.objects import define, update
from coterie.objects.paper import ObjectReplica
from coterie.protocol.messages import PaperListen, PaperReply, PaperRequest
from coterie.replication.layer import EngineLayer
from coterie.runtime.events import EventLogger
from coterie.service.admission import UPDATE
from coterie.service.engines.front import GroupFront
from coterie.service.engines.hosted import HostedReplica
from coterie.stacks import build_engine, is_globally_safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.journal.engines.stack_keeper import JournalKeeper
    from coterie.kernel.engine import Past, Status
    from coterie.kernel.views import Configuration
    from coterie.objects import Definition
    from coterie.objects.paper import Client, ClientId, ObjectId
    from coterie.protocol.messages import Ask
    from coterie.service.caller import Caller
    from coterie.service.engines.hosted import Seat
    from coterie.service.port import ClientPort

CLIENTS_MAX = 1024
"""How many clients one connection may speak for; it is closed if it names more."""
_WHY = "this object has the paper's own interface: its clients are of coterie.client.paper"


def define_paper(cls: type[ObjectReplica]) -> Definition:
    """Give what the service needs to know of a class with the paper's interface: its name."""

    class StandIn:
        @update
        def multicast(self, message: bytes) -> None:
            """Stand for what only the object itself does."""

    StandIn.__doc__ = cls.__doc__
    StandIn.__name__ = StandIn.__qualname__ = cls.__qualname__
    definition = define(StandIn)
    definition.methods = {}
    StandIn._paper = cls  # type: ignore[attr-defined]  # noqa: SLF001 -- ours
    return definition


def paper_class_of(definition: Definition) -> type[ObjectReplica] | None:
    """Give the class that `define_paper` was given, if it was."""
    return getattr(definition.cls, "_paper", None)


class _Seat:
    """An object's membership in its group, as the paper has it."""

    def __init__(self, hosted: HostedPaperObject) -> None:
        self._hosted = hosted
        self.me = hosted.replica.context.me

    def propose(self, payloads: Sequence[bytes]) -> None:
        self._hosted.engine.propose(payloads)

    def leave(self) -> None:
        self._hosted.leave()


class HostedPaperObject(HostedReplica):
    """One `ObjectReplica` in a live process. It is the `System` that the object joins."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        live: Seat,
        *,
        group: str,
        definition: Definition,
        stack: str,
        configuration: Configuration,
        front: PaperFront,
        keeper: JournalKeeper | None = None,
        past: Past | None = None,
    ) -> None:
        paper = paper_class_of(definition)
        assert paper is not None, "a class with the paper's interface"
        self._definition = definition
        self._front = front
        self._status: Status | None = None
        past = past if keeper is None else keeper.past()
        context = make_context(live.process, group, configuration, past=past)
        self.object = paper()
        replica = build_engine(stack, context, self.object)
        engine = replica.layers[0]
        assert isinstance(engine, EngineLayer)
        self.engine = engine
        super().__init__(
            live,
            replica,
            configuration=configuration,
            keeper=keeper,
            lost="what it knew is lost" if keeper is None else keeper.recovery.reason,
        )
        if keeper is not None:
            keeper.checkpoint = self.history.checkpoint
        self.object.join(
            self,
            optimistic=not is_globally_safe(stack),
            max_group_size=len(configuration.members),
        )
        front.attach(self)

    @property
    def definition(self) -> Definition:
        """The stand-in for its class."""
        return self._definition

    @property
    def status(self) -> Status | None:
        """Where the replica stands; None before its first turn."""
        return self.object.standing

    def _turn_ended(self) -> None:
        super()._turn_ended()
        if self.status is not self._status:
            self._status = self.status
            self._front.tell_news()

    # ---- what the object asks of its system (`coterie.objects.paper.System`)

    def join(self, replica: ObjectReplica, *, optimistic: bool, max_group_size: int) -> _Seat:
        """Give the object its seat."""
        del replica, optimistic, max_group_size
        return _Seat(self)

    def send_request(self, client: Client, request: bytes) -> None:
        """Refuse: clients are elsewhere."""
        del client, request
        raise NotImplementedError("a client connects with coterie.client.paper.connect_paper")

    def reply(self, client: ClientId, origin: ObjectId, reply: bytes) -> None:
        """Have an answer sent when the turn has ended."""
        self._front.reply(client, origin, reply)


class PaperFront(GroupFront[HostedPaperObject]):
    """Speaks for the paper's clients of one group at one replica."""

    engine = "stack"

    def __init__(self, port: ClientPort, group: str) -> None:
        super().__init__(port, group)
        self._events = EventLogger(port=port.replica, group=group)
        self._listening: dict[ClientId, dict[Caller, None]] = {}
        self._clients: dict[Caller, set[ClientId]] = {}

    def said(self, caller: Caller, message: object, size: int) -> None:
        """Have a message of a client taken inside the next turn."""
        assert isinstance(message, PaperListen | PaperRequest)
        clients = self._clients.setdefault(caller, set())
        if message.client not in clients and len(clients) >= CLIENTS_MAX:
            raise FrameError("clients", f"a connection speaks for {CLIENTS_MAX} clients at most")
        clients.add(message.client)
        self._listening.setdefault(message.client, {})[caller] = None

        def take() -> None:
            caller.taken(size)
            if isinstance(message, PaperRequest) and not caller.is_over and self._admits(caller):
                self._request(message)

        self.hosted.call(take)

    def _admits(self, caller: Caller) -> bool:
        """Say whether a client may make requests; in the paper there is no word for a refusal."""
        admission = self.admission
        if not admission.is_needed(caller):
            return True
        asked = AskedCall(UPDATE, "client_request_callback", 0, 0, 1, "", "")
        never, later = admission.judge(caller, asked)
        admission.report(caller, self.hosted.replica.context)
        return not never and not later

    def _request(self, message: PaperRequest) -> None:
        try:
            self.hosted.object.client_request_callback(message.client, message.request)
        except Exception as error:  # noqa: BLE001 -- what an object raises is no bug of ours
            # The paper has no word for it: whoever hears nothing asks again.
            self._events.warn("request failed", counter="paper.requests_failed", error=repr(error))

    def reply(self, client: ClientId, origin: ObjectId, reply: bytes) -> None:
        """Have an answer sent on all connections of a client."""
        for caller in self._listening.get(client, ()):
            caller.tell(PaperReply(client, origin, reply))

    def remove(self, caller: Caller) -> None:
        """Forget a caller whose connection has ended."""
        super().remove(caller)
        for client in self._clients.pop(caller, ()):
            callers = self._listening[client]
            del callers[caller]
            if not callers:
                del self._listening[client]

    def take(self, caller: Caller, ask: Ask) -> None:
        """Give reports, and refuse anything else."""
        self.report_or_refuse(caller, ask, _WHY)
