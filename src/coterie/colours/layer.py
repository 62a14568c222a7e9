"""COLOURS: one global order of actions over a partitioned network (**transis** slides 24-32).

Every component takes actions at any time. In the *primary* component an action is green, ordered
for good, when it is delivered *safe*: all members have it, so each of them will deliver it, in the
same place, unless it crashes. No acknowledgement from end to end, and no forced write, is needed
for an action; both are paid once, when the membership changes. Elsewhere actions are *red*; they
travel by the eventual path and are ordered when they reach a primary component.

A view of the layer below is a configuration. Its end comes in three steps within one turn:
`transitional`, the deliveries that only those who go on together are sure of, `view`. The eight
states (`ServerState`) and what leads from one to another, X being "force the disk, say `State`":

| State | Event and what follows |
|---|---|
| NonPrim | action: red; view: X, ExchangeStates |
| RegPrim | action: green; transitional: TransPrim |
| TransPrim | action: yellow; view: not vulnerable, yellow valid, X |
| ExchangeStates | action: red; transitional: NonPrim; last `State`: decide, ExchangeActions |
| ExchangeActions | action: red; transitional: NonPrim; union held: learn what was decided, then |
| | without a quorum: force, NonPrim; with one: vulnerable, force, `Cpc`, Construct |
| Construct | action: red; last `Cpc`: Install, RegPrim (1a); transitional: No |
| No | action: red; last `Cpc`: Un; view: not vulnerable (0), X |
| Un | action: Install, yellow, TransPrim (1b); view: X, still vulnerable (?) |

What is known together is decided at the last `State`, and counts only once the actions that it
speaks of are held. A control message counts only if it is delivered in the regular part of its
view, except `Cpc` in No. What comes behind a hole in the order is red, never yellow: a safe
delivery elsewhere needs everything before it everywhere, so nobody made it green.

The turn makes forced writes simple: what a turn reports is on disk before anything of it leaves.

Departures from the slides are in `docs/internals/papers.md`; how it is built, in
`docs/internals/colours.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.colours.exchange import ActionExchange
from coterie.colours.knowledge import Judge, Knowledge
from coterie.colours.marking import parts
from coterie.colours.members import Members
from coterie.colours.messages import (
    CONTROL,
    Actions,
    Again,
    Cpc,
    FetchActions,
    GreenLine,
    State,
    decode_action,
    decode_control,
    decode_direct,
)
from coterie.colours.queue import in_lamport_order
from coterie.colours.states import ServerState
from coterie.kernel.clock import Duration, seconds
from coterie.kernel.components import Action, Component, Vulnerable
from coterie.kernel.configuration import take_off
from coterie.kernel.decoding import COUNT_MAX
from coterie.kernel.layers import Service
from coterie.kernel.past_lives import number_of
from coterie.kernel.records import (
    ActionsKnown,
    ComponentAttempted,
    ComponentInstalled,
    ComponentState,
    Delivery,
    StateAdopted,
    TransitionalInstalled,
    WordGiven,
)
from coterie.kernel.transfer import ENCODER_POLL
from coterie.replication.messages import (
    Entries,
    FetchChunk,
    FetchEntries,
    OtherHistory,
    StateChunk,
    StateOffer,
)
from coterie.replication.transfer import Donor

if TYPE_CHECKING:
    from coterie.kernel.layers import Batch, Context
    from coterie.kernel.views import Member, ReplicaId, View, ViewId

WORD_LASTS = seconds(60)
"""How long the word of an operator holds, if nothing comes of it."""

S = ServerState


class Colours(Members):
    """The layer that marks actions with colours."""

    name = "COLOURS"
    needs = frozenset(
        {Service.VIEWS, Service.STABILITY, Service.TOTAL_ORDER, Service.SAFE_DELIVERY}
    )
    gives = frozenset({Service.HISTORY, Service.TOTAL_ORDER})
    judge = Judge()

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.is_by_hand = False
        """Whether an operator said a moment ago that what is known here counts."""
        self._donor = Donor(self.queue.log, self._state, context.settings.packet_bytes_max)
        self._round = 0
        self._begin_exchange()

    def _begin_exchange(self) -> None:
        self._states: dict[Member, State] = {}
        self._cpcs: set[Member] = set()
        self._knowledge: Knowledge | None = None
        self._exchange: ActionExchange | None = None
        self._early, self._early_bytes = [], 0
        self.is_given_up = False
        self.context.cancel_timer("exchange")
        self._donor.forget()

    # ---- a configuration begins and ends

    def view(self, view: View) -> None:
        self._view = view
        self._round = self._proposed = 0
        self.was_left_out, self.follows = self.follows, False
        self._said.clear()
        self._unsent.clear()
        self._view_ended()
        self._exchange_states()
        self._show()

    def _view_ended(self) -> None:
        self._keep_received()
        match self.state:
            case S.TRANS_PRIM:
                self._leave_prim()
            case S.NO:
                self._attempt_failed()
            case S.UN:
                self._attempt_unknown()

    def leaving(self) -> None:
        """Stop in good order: a cut from everybody, not a crash, so that nobody waits for us.

        All that was received is delivered here first, as transitional: some of it may be green
        elsewhere. Only then may our record of the component go.
        """
        self.below.end_alone()
        self._view_ended()
        self._begin_exchange()
        self._enter(S.EXCHANGE_STATES, "leaves")
        self._force(ComponentState, position=self.green_end)
        self._show()

    def _leave_prim(self) -> None:
        """All that any member may have made green is here, green or yellow: say so from now on."""
        self.vulnerable = None
        self.yellow_is_valid = True

    def _attempt_failed(self) -> None:
        """Case 0: nobody can have got all `Cpc`s, so nobody has installed the component."""
        self.vulnerable = None

    def _attempt_unknown(self) -> None:
        """Case ?: others may have installed the component, so we protect it: still vulnerable."""

    def _exchange_states(self) -> None:
        self._begin_exchange()
        self._enter(S.EXCHANGE_STATES)
        self._force(ComponentState, position=self.green_end)
        self._cast(self._my_state())
        # A view may be installed at the very end of a turn, when the layer below has sent what it
        # had: the next turn comes at once, and not with the next sign of life.
        self.context.set_timer("exchange begins", Duration(0), _nothing)

    def _my_state(self) -> State:
        queue = self.queue
        return State(
            self._view.id,
            self._round,
            list(queue.red_cut.items()),
            queue.log.end,
            list(self.lines.items()),
            self.prim,
            self.vulnerable,
            self.yellow,
            self.is_zombie,
            queue.time,
            self.is_by_hand,
            self.context.settings.primary_min,
            queue.log.mark(queue.log.end),
            self.words,
            queue.log.start,
            self.was_left_out,
        )

    def transitional(self, view: ViewId, members: tuple[Member, ...]) -> None:
        self._report(TransitionalInstalled, view=view, members=members)
        match self.state:
            case S.REG_PRIM:
                self._enter(S.TRANS_PRIM)
            case S.EXCHANGE_STATES | S.EXCHANGE_ACTIONS:
                self._enter(S.NON_PRIM)
            case S.CONSTRUCT:
                self._enter(S.NO)

    # ---- deliveries

    def deliver(self, batches: list[Batch]) -> None:
        for batch in batches:
            if batch.mark == CONTROL:
                for payload in batch.payloads:
                    self._on_control(batch, payload)
            else:
                self._on_actions(batch)
        self._advance()
        self._show()

    def _on_control(self, batch: Batch, payload: bytes) -> None:
        message = decode_control(payload)
        if message is None:
            self.context.count("colours.malformed")
            return
        counts = batch.delivery is Delivery.REGULAR or (
            batch.delivery is Delivery.TRANSITIONAL
            and isinstance(message, Cpc)
            and self.state is S.NO
        )
        is_of_view = isinstance(message, GreenLine) or message.view == self._view.id
        if not counts or not is_of_view:
            self.context.count("colours.stale")
            return
        match message:
            case State():
                self._on_state(batch.sender, message)
            case Cpc():
                self._on_cpc(batch.sender)
            case GreenLine(position=position):
                self._on_line(batch.sender, position)
            case Again():
                self._on_again()

    def _on_actions(self, batch: Batch) -> None:
        if self.is_given_up:
            return  # they belong to a history that goes on without us
        actions: list[Action] = []
        for payload in batch.payloads:
            action = decode_action(batch.sender, payload)
            if action is None:
                self.context.count("colours.malformed")
            else:
                actions.append(action)
        if batch.delivery is Delivery.AFTER_HOLE:
            self._on_hole(actions)
            return
        if self.state is S.UN:
            # Only who has installed the component creates actions in it.
            self._install()
            self._enter(S.TRANS_PRIM, "1b")
        match self.state:
            case S.REG_PRIM:
                self._mark_green_now(actions)
            case S.TRANS_PRIM:
                self._mark_yellow(actions)
            case _:
                self._mark_red(actions)

    # ---- the exchange of states

    def _on_state(self, sender: Member, message: State) -> None:
        if self.state is not S.EXCHANGE_STATES or message.round != self._round:
            self.context.count("colours.stale")
            return
        self._states[sender] = message
        if len(self._states) == len(self._view.members):
            # In rank order, which is the same everywhere.
            self._states = {member: self._states[member] for member in self._view.members}
            self._decide()

    def _decide(self) -> None:
        """All is told: everybody comes to the same conclusion, and fetches what it lacks."""
        known = self.judge.compute(self._states, self._view.configuration)
        self._knowledge = known
        if known.strays:
            # What is green at one and not at another is among nobody's actions to give: without
            # this the exchange would never end.
            self.context.count("colours.orders_differ")
            self._force(ComponentState, position=self.green_end)
            self._enter(S.NON_PRIM, self._why_not(known))
            return
        if self.me.id in known.given_up:
            self.is_given_up = True
            self._enter(S.NON_PRIM, self._why_not(known))
            return
        others = {m: state for m, state in self._states.items() if m.id not in known.given_up}
        self._exchange = ActionExchange(self.me, self.queue, others, known)
        self._enter(S.EXCHANGE_ACTIONS)
        self._go_on()

    def recover(self) -> None:
        """Let what is known here count, on the word of an operator who accepts the loss of more.

        This is the way out where the algorithm blocks: somebody who may know of green actions, or
        of a component that was installed, will never come back. It makes all attempts void, and a
        majority of the configuration a quorum, once, in an exchange with this replica. Nothing is
        lost that anybody in it holds.
        """
        self.is_zombie = False
        self.is_by_hand = True
        self.context.set_timer("by hand", WORD_LASTS, self._forget_word)
        self._report(WordGiven, prim=self.prim, position=self.green_end)
        if self.state is S.NON_PRIM:
            self._cast(Again(self._view.id))

    def _forget_word(self) -> None:
        self.is_by_hand = False

    def _on_again(self) -> None:
        """An operator spoke: exchange states once more, if the last exchange led nowhere.

        Whether it did is the same for all: it was decided at a place of the order before this one.
        """
        known = self._knowledge
        if known is None:
            return
        if known.is_quorum:
            # There is a component, and it is to have other members: it needs another view.
            self.below.renew()
            return
        self._round += 1
        self._exchange_states()

    # ---- the exchange of actions

    def _go_on(self) -> None:
        """Fetch what is still missing; with all of it here, learn what was decided."""
        exchange = self._exchange
        if exchange is None or self.state is not S.EXCHANGE_ACTIONS:
            return
        transfer = exchange.transfer
        if transfer is not None and transfer.is_complete:
            self._adopt()
        if self._holds_union(exchange) and not self._others_went_on:
            self._union_held()
        elif exchange.has_greens and self._is_left_out():
            self._follow()
        else:
            self._ask()

    def _holds_union(self, exchange: ActionExchange) -> bool:
        return exchange.is_complete

    def _ask(self) -> None:
        exchange = self._exchange
        assert exchange is not None, "there is an exchange"
        donor, requests = exchange.requests()
        if donor is not None:
            for request in requests:
                self._send(request, donor)
        wait = self.context.settings.transfer_resend
        self.context.set_timer("exchange", wait, self._stalls)

    def _stalls(self) -> None:
        if self._exchange is not None and self.state is S.EXCHANGE_ACTIONS:
            self._exchange.ask_again()
            self._ask()

    def _adopt(self) -> None:
        """Green actions that we lacked are here, or a state with them in it."""
        exchange, queue = self._exchange, self.queue
        assert exchange is not None, "there is an exchange"
        transfer = exchange.transfer
        assert transfer is not None, "there is a transfer"
        exchange.transfer = None
        offer = transfer.state.offer
        if offer is not None:
            greens = tuple(offer.origins)
            self._report(
                StateAdopted, source=transfer.donor, position=offer.position, greens=greens
            )
            configuration, chunks = take_off(transfer.state.chunks())
            queue.reset(offer.position, dict(greens), configuration)
            self.above.restore(chunks, offer.position)
            self._showing.restored(offer.position)
            self._after_green()
        for staged in transfer.runs:
            if staged.last_position <= queue.log.end:
                continue
            run = staged.after(queue.log.end)
            unknown = [
                Action(run.origin, index, 0, command)
                for index, command in enumerate(run.payloads, start=run.first)
                if index > number_of(queue.red_cut, run.origin)
            ]
            for known in parts(unknown):
                self._report(ActionsKnown, actions=known)
            queue.take_green(run)
            self._are_green([run])
        decided = self._knowledge
        assert decided is not None, "something was decided"
        if self.words != decided.prim.words:
            # What is green here rests on them from now on, whatever comes of the exchange.
            self.words = decided.prim.words
            self._force(ComponentState, position=self.green_end)

    def _union_held(self) -> None:
        """Learn what was decided: the actions that it speaks of are here."""
        known = self._recount()
        self.context.cancel_timer("exchange")
        self._exchange = None
        self._apply(known)
        early, self._early = self._early, []
        self._learn(early)
        participants = self._who_attempts(known)
        if self.me.id in participants:
            self._attempt(participants)
            return
        self._force(ComponentState, position=self.green_end)
        if participants:
            self._follow()
        else:
            self._enter(S.NON_PRIM, self._why_not(known))

    def _recount(self) -> Knowledge:
        """Give what was decided, by the configuration to which the green actions led.

        The view may have begun before a change of members became green. All hold the same green
        actions by now, so all count the same members.
        """
        known = self._knowledge
        assert known is not None, "something was decided"
        is_changed = self.configuration.number != self._view.configuration.number
        if is_changed and not self._others_went_on:
            known = self._knowledge = self.judge.compute(self._states, self.configuration)
        return known

    def _who_attempts(self, known: Knowledge) -> tuple[ReplicaId, ...]:
        """Give who is to be ready for a component now; nobody where there can be none.

        Not who needs a whole state, where the others are a quorum without it: they go on meanwhile.
        """
        participants = self._participants(without=(*known.given_up, *known.left_out))
        is_large = len(self._component_of(participants)) >= known.least
        return participants if known.is_quorum and is_large else ()

    @property
    def _others_went_on(self) -> bool:
        """Whether more is green here than in the exchange: others have their component already."""
        known = self._knowledge
        return known is not None and self.green_end > known.green_end

    def _is_left_out(self) -> bool:
        """Say whether others attempt a component, and do not wait for this server.

        Then what is red in the exchange may be green there by now, and nobody gives it as red.
        """
        participants = self._who_attempts(self._recount())
        return self._others_went_on or (bool(participants) and self.me.id not in participants)

    def _follow(self) -> None:
        """Say that the green actions are here: those who take part may have us now.

        Where not all is here that anybody holds, nothing is learned of what was decided.
        """
        self.context.cancel_timer("exchange")
        self._exchange = None
        self.follows = True
        self._enter(S.NON_PRIM, "others have gone on, and take it in with the next view")
        self._cast(GreenLine(self.green_end))

    def _apply(self, known: Knowledge) -> None:
        self.prim, self.words = known.prim, known.prim.words
        self.vulnerable = known.records.get(self.me.id)
        self.yellow_is_valid = known.yellow is not None
        yellow = () if known.yellow is None else known.yellow.above(self.green_end).actions
        self.queue.set_yellow(yellow)
        self.queue.time = max(self.queue.time, known.time)
        self._merge_lines(known.lines)

    def _why_not(self, known: Knowledge) -> str:
        if self.me.id in known.given_up:
            return (
                f"an operator gave up what {self.me.id} alone made green, and the others have gone "
                "on: start it with an empty folder"
            )
        if known.strays:
            return (
                f"{', '.join(known.strays)} has made other actions green than the others: start it "
                "with an empty folder"
            )
        if known.records:
            held = ", ".join(sorted(known.records))
            waits = sorted({each for r in known.records.values() for each in r.members})
            return f"{held} cannot say what came of an attempt of {', '.join(waits)}"
        sound = [member.id for member, state in self._states.items() if self.judge.counts(state)]
        if self.judge.is_quorum(known.prim, sound):
            return f"a primary component has at least {known.least} members (primary_min)"
        return f"no quorum of primary component {known.prim}"

    def receive_direct(self, sender: Member, body: bytes) -> None:
        message = decode_direct(body)
        match message:
            case FetchActions():
                limit = self.context.settings.packet_bytes_max
                found = self.queue.beyond(dict(message.red_cut), bytes_max=limit)
                self._send(Actions(message.serial, found), sender)
            case FetchEntries():
                self._send(self._donor.answer(message), sender)
            case FetchChunk():
                self._donor.ask_chunk(sender, message)
                self._give_chunks()
            case Actions():
                self._on_given(sender, message)
            case Entries() | StateOffer() | StateChunk():
                transfer = None if self._exchange is None else self._exchange.transfer
                if transfer is not None and sender == transfer.donor and transfer.take(message):
                    self._exchange_goes_on()
            case OtherHistory(after=after):
                transfer = None if self._exchange is None else self._exchange.transfer
                if transfer is not None and after == transfer.after:
                    self.context.count("colours.histories_given_up")
                    transfer.start_over()
                    self._exchange_goes_on()
        self._show()

    def _on_given(self, sender: Member, message: Actions) -> None:
        exchange = self._exchange
        if exchange is None or not exchange.is_answer(sender, message):
            return
        before = sum(self.queue.red_cut.values())
        self._learn(message.actions)
        if sum(self.queue.red_cut.values()) > before:
            self._exchange_goes_on()

    def _exchange_goes_on(self) -> None:
        assert self._exchange is not None, "there is an exchange"
        if self.state is S.EXCHANGE_ACTIONS:
            self._exchange.went_on()
            self._go_on()

    def _give_chunks(self) -> None:
        """Send the chunks that are encoded; the state may still be being encoded elsewhere."""
        for member, chunk in self._donor.ready_chunks():
            self._send(chunk, member)
        if self._donor.is_waited_for:
            self.context.set_timer("donate", ENCODER_POLL, self._give_chunks)

    # ---- a primary component

    def _attempt(self, participants: tuple[ReplicaId, ...]) -> None:
        """Be ready for a primary component: on disk first, then said."""
        view = self._view
        self.vulnerable = Vulnerable(self.prim.index, view.id, participants, (self.me.id,))
        self._force(ComponentAttempted)
        self._enter(S.CONSTRUCT)
        self._cast(Cpc(view.id), safe=self.casts_safe)

    def _on_cpc(self, sender: Member) -> None:
        if self.state not in {S.EXCHANGE_ACTIONS, S.CONSTRUCT, S.NO}:
            self.context.count("colours.stale")
            return
        self._cpcs.add(sender)
        if self.state is S.EXCHANGE_ACTIONS or not self._has_all_cpcs():
            return
        if self.state is S.CONSTRUCT:
            self._install()
            self._enter(S.REG_PRIM, "1a")
        elif self.state is S.NO:
            self._enter(S.UN)

    def _has_all_cpcs(self) -> bool:
        attempt = self.vulnerable
        assert attempt is not None, "an attempt is made before it is counted who is ready"
        return {member.id for member in self._cpcs}.issuperset(attempt.members)

    def _install(self) -> None:
        """Begin a primary component: yellow actions first, then the red ones, become green."""
        attempt = self.vulnerable
        assert attempt is not None, "an attempt is made before a component is installed"
        before = self.green_end
        yellow = list(self.queue.yellow)
        reds = [action.id for action in self._red_order(self.queue.reds)]
        members = self._component_of(attempt.members)
        known = self._knowledge
        if known is not None and known.is_by_hand:
            self.words = self.prim.after_word(before, self._view.id)
        index = min(self.prim.index + 1, COUNT_MAX)
        self.prim = Component(index, self._view.id, members, self.words)
        self._installed_with, self._installed_at = self.configuration.number, before
        self._number = 0
        self.is_zombie = self.is_by_hand = False
        self._yellow_after_install()
        self._force(ComponentInstalled, position=before)
        self._mark_green([*yellow, *reds])
        self._announced = self.green_end

    def _yellow_after_install(self) -> None:
        """While the component lasts nobody on disk says what may be green elsewhere."""
        self.yellow_is_valid = False

    def _red_order(self, reds: list[Action]) -> list[Action]:
        return in_lamport_order(reds)


def _nothing() -> None:
    """A timer that only has to bring about a turn."""
