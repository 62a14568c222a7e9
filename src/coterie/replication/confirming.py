"""Consistent reads without a place in the order.

Who is to answer a read asks the members of its view, after the read arrived, how far each has
accepted in this view, and answers once it has settled up to the highest answer. That is
linearizable:

- *No later view knows more.* A later primary view is confirmed by a quorum, which shares a member
  with those who answered. That member answered in this view, so it accepted the later one after
  the read had arrived, and what the later view settled was not known to anybody before.
- *Nothing of this view is missed.* What was settled before the read arrived had been accepted by a
  quorum. It shares a member with those who answered, too, and that one's answer is as high.

To have the view confirmed alone is not enough: b settles an entry with a and answers its caller;
a and c confirm the view to c, which has no such entry, or does not know that it is settled.

**While members change** those who answered must be a quorum of the configuration in force at the
highest answer. The asker is among those who answered, so the highest is not below the end of its
history when it asked; if no entry of a change has come since, the configuration is still the same
there. Otherwise it asks again. (A configuration that comes behind the highest answer is no matter:
a majority of the members before holds an entry of a change before anything is counted by it.)

No clock and no lease is in this: it holds however slow anybody is.

One question is under way at a time; what is read meanwhile waits for the next one, so many reads
share one. It promises what is said only where the host sees nothing but what is settled (SAFE):
elsewhere an answered update may be known to one replica alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coterie.kernel.clock import Duration
from coterie.kernel.engine import Role
from coterie.replication.members import ChangingMembers
from coterie.replication.messages import Confirm, Confirmed

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.layers import Context
    from coterie.kernel.views import Configuration, Member, ReplicaId

CONFIRM = "primary confirm"
"""The name of the timer for asking those again who have not answered."""


ANEW = "primary confirm anew"
"""The name of the timer for asking anew where what was answered does not come."""
ANEW_AFTER = 10
"""After so many times `advertise_interval`: with all that is repaired by then it has come."""

ANSWERED_MAX = 16
"""So many questions wait at most until something has settled; then no more are asked."""


def _nobody(serial: int) -> None:
    raise AssertionError(serial)


class _Question:
    """One question to the members of the view."""

    __slots__ = ("answered", "configuration", "position", "serial")

    def __init__(
        self, serial: int, me: ReplicaId, position: int, configuration: Configuration
    ) -> None:
        self.serial = serial
        self.answered = {me}
        self.position = position
        """How far the furthest of those who answered has accepted."""
        self.configuration = configuration
        """The one in force at the end of our history when this was asked."""


class _Answered(NamedTuple):
    """A question that a quorum has answered: what it is for waits until this has settled."""

    position: int
    serial: int
    configuration: Configuration


class ConfirmingReads(ChangingMembers):
    """The part of PRIMARY that says when everything is here that a reader must see."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._wanted = 0
        """The serial of the last reads that the host wants to have confirmed."""
        self._done = 0
        """The serial of the last reads that are confirmed."""
        self._confirmed: Callable[[int], None] = _nobody
        """Whom to tell."""

    def _begin_view(self) -> None:
        super()._begin_view()
        self._question: _Question | None = None
        self._answered: list[_Answered] = []
        self._asked = self._done
        """The serial of the last question in this view that is not to be asked again."""
        self._awaited = 0
        """Somebody reads and waits until everything up to here has settled."""

    def confirm(self, serial: int, confirmed: Callable[[int], None]) -> None:
        self._wanted = serial
        self._confirmed = confirmed

    def _go_on_with_reads(self) -> None:
        """At the end of a turn: ask, if something is to be asked and nothing is under way."""
        if self.role is not Role.PRIMARY or self.below.is_stopped:
            return
        if self._answered and self.log.settled < self.log.end:
            self._settle_what_a_majority_has()  # who read is not always told at once
        if (
            self._wanted > self._asked
            and self._question is None
            and len(self._answered) < ANSWERED_MAX
        ):
            log, serial = self.log, self._wanted
            self._asked = serial
            self._question = _Question(serial, self.me.id, log.end, log.configuration)
            self._ask_members(self._question)
            self._look_at_question(self._question)

    def _settle_what_a_majority_has(self) -> None:
        raise NotImplementedError

    def _ask_members(self, question: _Question) -> None:
        missing = [each for each in self._view.members if each.id not in question.answered]
        if missing:
            self._send(Confirm(question.serial), *missing)
            self.context.set_timer(CONFIRM, self.context.settings.advertise_interval, self._again)

    def _again(self) -> None:
        """Answers are missing: a message may be lost, or a learner may have come to accept."""
        question = self._question
        if question is not None and not self.below.is_stopped:
            self._ask_members(question)

    def _on_confirm(self, sender: Member, message: Confirm) -> None:
        """Say how far we have accepted in this view; a learner has not, and does not count."""
        if not self._has_accepted:
            return
        end = self.log.end
        if self.log.settled < end:
            self._awaited = end
        self._send(Confirmed(message.serial, end), sender)

    def _on_confirmed(self, sender: Member, message: Confirmed) -> None:
        """Take an answer that is ours to count; it acknowledges entries, too."""
        question = self._question
        if question is not None and message.serial == question.serial:
            question.answered.add(sender.id)
            question.position = max(question.position, message.position)
            self._look_at_question(question)

    def _look_at_question(self, question: _Question) -> None:
        """Go on if enough have answered."""
        if question.configuration.is_quorum(question.answered):
            self._question = None
            self.context.cancel_timer(CONFIRM)
            self._answered.append(
                _Answered(question.position, question.serial, question.configuration)
            )
            self._look_at_answered()

    def _look_at_answered(self) -> None:
        """Let the host read what was waited for, where it has settled by now."""
        settled = self.log.settled
        answered = self._answered
        while answered and answered[0].position <= settled:
            found = answered.pop(0)
            if found.configuration is not self.log.configuration:
                # The members have changed meanwhile: it may have been no quorum of theirs.
                answered.clear()
                self._asked = self._done
                return
            self._done = found.serial
            self._confirmed(found.serial)
        if answered and answered[0].position > self.log.end:
            self._doubt(answered[0].serial)

    def _doubt(self, serial: int) -> None:
        """Ask anew if the history does not get to where somebody says that it is.

        Nobody may ever have been there: who said it is damaged, and would have all reads wait for
        as long as the view lasts. A question that is asked later is as good.
        """
        if self.context.timer_is_set(ANEW):
            return

        def ask_anew() -> None:
            answered = self._answered
            if not answered or self.below.is_stopped:
                return
            if answered[0].serial == serial and answered[0].position > self.log.end:
                self.context.count("primary.reads_confirmed_anew")
                answered.clear()
                self._question = None
                self._asked = self._done
            else:
                self._look_at_answered()

        wait = Duration(ANEW_AFTER * self.context.settings.advertise_interval)
        self.context.set_timer(ANEW, wait, ask_anew)
