"""One replica of one group: a stack of layers with an application on top."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from coterie.kernel.errors import BadMessage
from coterie.kernel.layers import Layer
from coterie.kernel.records import Delivered, TransitionalInstalled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from coterie.kernel.engine import HistoryKeeper
    from coterie.kernel.layers import Application, Batch, Context, Ending, Side
    from coterie.kernel.views import Member, View, ViewId


class Bottom(Protocol):
    """What the lowest layer of a stack offers to the process around it."""

    has_left: bool
    highest: int

    def start(self) -> None:
        """Begin the replica's life; called inside its first turn."""

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message of this layer; raise `msgspec.DecodeError` if it is none."""

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- its own kinds
        """Take one message of those it decodes."""

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        """Learn that the failure detector changed its mind, and which processes are new."""


@runtime_checkable
class HearsStrangers(Protocol):
    """A bottom whose group changes its members: one that was away may not know them all."""

    def hear_stranger(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- its own kinds
        """Take a message of a process that this one does not know."""


class CommonCase(Protocol):
    """The common case of a stack, straight: `coterie.bypass`."""

    def receive(self, sender: Member, messages: Sequence[msgspec.Raw]) -> bool:
        """Take the messages of one envelope, or change nothing and say False."""

    def finish_turn(self) -> bool:
        """Let the top finish, and the layers; False if the layers are to be asked themselves."""


class Top(Layer):
    """The end of every stack: records deliveries and hands them to the application.

    Also answers, for stacks in which no layer above VSYNC cares, the questions VSYNC asks.
    """

    name = "TOP"

    def __init__(self, context: Context, application: Application) -> None:
        super().__init__(context)
        self.application = application

    def parse(self, header: bytes) -> object:
        if header:
            raise BadMessage("a header that no layer of this stack put there")
        return None

    def deliver(self, batches: list[Batch]) -> None:
        context = self.context
        if context.recording:
            now = context.now
            for batch in batches:
                context.report(
                    Delivered(
                        group=context.group,
                        member=context.me,
                        at=now,
                        view=batch.view,
                        sender=batch.sender,
                        first=batch.first,
                        count=len(batch.payloads),
                        number=batch.number,
                        safe=batch.safe,
                        delivery=batch.delivery,
                        digest=batch.digest,
                    )
                )
        self.application.deliver(batches)

    def stability_rose(self) -> None:
        pass

    def receive_direct(self, sender: Member, body: bytes) -> None:  # noqa: ARG002
        raise BadMessage("a direct message that no layer of this stack sends")

    def flush_value(self) -> bytes:
        return b""

    @property
    def has_waiting_casts(self) -> bool:
        return False

    def end_view(self, ending: Ending) -> None:
        # No layer below has an order in which the transitional view would have a place.
        self.transitional(ending.view, ending.transitional)

    def transitional(self, view: ViewId, members: tuple[Member, ...]) -> None:
        context = self.context
        context.report(
            TransitionalInstalled(
                group=context.group, member=context.me, at=context.now, view=view, members=members
            )
        )
        self.application.transitional(view, members)

    def view(self, view: View) -> None:
        self.application.view(view)

    def leaving(self) -> None:
        pass

    def alive_heard(self, value: bytes) -> None:
        pass

    def alive_value(self) -> bytes:
        return b""

    def proposes_merge(self, ours: Side, theirs: Side) -> bool | None:
        # The larger side proposes, so that a returning member does not take the first rank (and
        # with it the sequencer) from a group at work.
        if len(ours.members) != len(theirs.members):
            return len(ours.members) > len(theirs.members)
        return ours.contact < theirs.contact


class Replica:
    """A built stack: `layers` are top first, as they are written; *top* is their end."""

    def __init__(
        self,
        context: Context,
        top: Layer,
        layers: Sequence[Layer],
        bottom: Bottom,
        history: HistoryKeeper | None = None,
    ) -> None:
        self.context = context
        self.top = top
        self.layers = tuple(layers)
        self.bottom = bottom
        self.history = history
        """Who keeps the replica's history; None where it is group communication alone."""
        # Those who do nothing at the end of a turn are not asked to: most turns are small.
        self._finishing = [
            layer.finish_turn
            for layer in (top, *layers)
            if type(layer).finish_turn is not Layer.finish_turn
        ]
        self._finishing += [
            layer.end_turn for layer in layers if type(layer).end_turn is not Layer.end_turn
        ]
        self.bypass: CommonCase | None = None
        """The straight way of the common case, where the stack has one (`coterie.bypass`)."""
        self._rest = self._finishing[1:]
        """Who is left where the top has finished."""
        for upper, lower in pairwise([top, *layers]):
            upper.below = lower
            lower.above = upper
        for layer in reversed(self.layers):
            layer.assembled()

    def cast(self, payloads: Sequence[bytes], *, safe: bool = False) -> int:
        """Multicast messages; see `Layer.cast`."""
        return self.layers[0].cast(payloads, safe=safe)

    def leave(self) -> None:
        """Leave the group in good order."""
        self.layers[0].leave()

    def receive(self, sender: Member, messages: Sequence[msgspec.Raw]) -> None:
        """Take the messages of one envelope."""
        bypass = self.bypass
        if bypass is not None and bypass.receive(sender, messages):
            return
        bottom = self.bottom
        for raw in messages:
            bottom.receive(sender, bottom.decode(raw))

    def hear_stranger(self, sender: Member, messages: Sequence[msgspec.Raw]) -> None:
        """Take the messages of one envelope of a process that ours does not know."""
        bottom = self.bottom
        if isinstance(bottom, HearsStrangers):
            for raw in messages:
                bottom.hear_stranger(sender, bottom.decode(raw))

    def finish_turn(self) -> None:
        """Let everything from the top down send what gathered up."""
        bypass = self.bypass
        if bypass is None:
            for finish in self._finishing:
                finish()
        elif not bypass.finish_turn():
            for finish in self._rest:
                finish()
