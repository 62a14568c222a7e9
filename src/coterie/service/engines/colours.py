"""A replicated object over a partitioned network, in a live process."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coterie.colours.layer import Colours
from coterie.colours.states import ServerState
from coterie.kernel.errors import Refused
from coterie.runtime.driver import clock
from coterie.service.engines.stack import HostedObject

if TYPE_CHECKING:
    from coterie.kernel.components import Action, Component

_SECOND = 1_000_000


class HostedColours(HostedObject):
    """One replica of one object whose answers have colours."""

    figures_help = {  # noqa: RUF012 -- as the base says
        **HostedObject.figures_help,
        "colours_red_actions": "Actions here that have no place in the global order yet.",
        "colours_red_bytes": "How much they take, of `red_bytes_max`.",
        "colours_red_seconds": "For how long there have been red actions here; 0 if there is none.",
        "colours_white_position": "Everything up to this position is green at all replicas.",
        "colours_component_number": "The number of the last primary component known here.",
        "colours_component_members": "How many members that component had.",
    }

    _red_since: int | None = None
    _component: Component | None = None
    _component_before: Component | None = None
    """What this replica knew as the last primary component before this one; for people only."""

    @property
    def engine(self) -> Colours:
        """The engine below the host."""
        engine = self.replica.layers[0]
        assert isinstance(engine, Colours), "COLOURS is the top of its stack"
        return engine

    @property
    def position(self) -> int:
        """The position of the last green action: what is red has none."""
        return self.history.position

    @property
    def reds(self) -> list[Action]:
        """The actions that are not green; in a primary component all are, or will be at once."""
        engine = self.engine
        return [] if engine.state is ServerState.REG_PRIM else engine.queue.shown()

    @property
    def red_seconds(self) -> float:
        """For how long there have been red actions here."""
        return 0.0 if self._red_since is None else (clock() - self._red_since) / _SECOND

    @property
    def why_not_primary(self) -> str:
        """Say what is missing for a primary component; nothing if this is one, or will be."""
        engine = self.engine
        status = self.status
        if engine.state is not ServerState.NON_PRIM or status is None:
            return ""
        if engine.why.startswith("no quorum"):
            here = {member.id for member in status.members}
            last = engine.prim.members
            present = [id for id in last if id in here]
            missing = [id for id in last if id not in here]
            half = f", or half with {last[0]}" if len(last) % 2 == 0 else ""
            return (
                f"it is not in the primary component: of the last one it is in touch with "
                f"{' '.join(present) or 'nobody'}, and it takes more than half{half}; "
                f"missing: {' '.join(missing) or 'nobody'}"
            )
        return f"it is not in the primary component: {engine.why}" if engine.why else ""

    @property
    def why_primary(self) -> str:
        """Say by what right this is the primary component; nothing if it is not, or nobody knows.

        A replica that has just come back does not know from which component it was made.
        """
        engine, last = self.engine, self._component_before
        if engine.state is not ServerState.REG_PRIM or last is None:
            return ""
        now = engine.prim.members
        shared = [id for id in last.members if id in now]
        has = f"{len(shared)} of the {len(last.members)} of component {last.index}"
        if len(shared) * 2 > len(last.members):
            return has
        if len(shared) * 2 == len(last.members) and last.members[0] in now:
            return f"{has}, with {last.members[0]}"
        if len(now) == len(engine.context.configuration.members):
            return "everybody"
        return "an operator's word"

    @property
    def trouble(self) -> str:
        """Why the replica is not as it should be, in words for an operator; empty if it is."""
        return super().trouble or self.why_not_primary

    def details(self) -> dict[str, str | int]:
        """Say which component is primary as far as is known, and what is red, whose, since when."""
        prim = self.engine.prim
        reds = self.reds
        whose = Counter(action.creator.id for action in reds)
        return {
            "component": f"{prim.index}: {' '.join(prim.members)}",
            "because": self.why_primary,
            "red": len(reds),
            "from": " ".join(f"{id}:{count}" for id, count in sorted(whose.items())),
            "seconds": round(self.red_seconds),
        }

    def figures(self) -> dict[str, float]:
        """Give the same, and more, for metrics."""
        engine = self.engine
        reds = self.reds
        return {
            **super().figures(),
            "colours_red_actions": len(reds),
            "colours_red_bytes": engine.queue.bytes if reds else 0,
            "colours_red_seconds": self.red_seconds,
            "colours_white_position": engine.white_end,
            "colours_component_number": engine.prim.index,
            "colours_component_members": len(engine.prim.members),
        }

    def _check_recovery(self) -> None:
        """Refuse where a component is there, or may still come, or too few would take part."""
        if self.cannot_recover:
            raise Refused(self.cannot_recover)
        engine = self.engine
        if engine.state is ServerState.REG_PRIM:
            raise Refused("the replica is in the primary component: nothing has to be recovered")
        if engine.state is not ServerState.NON_PRIM:
            raise Refused("what is known is being exchanged: wait for what comes of it")
        status = self.status
        here = set() if status is None else {member.id for member in status.members}
        if not engine.configuration.is_quorum(here):
            raise Refused(
                f"the replica is in touch with too few to go on ({', '.join(sorted(here))}): "
                "start more of the others"
            )

    def _turn_ended(self) -> None:
        super()._turn_ended()
        engine = self.engine
        if engine.prim is not self._component:
            self._component_before, self._component = self._component, engine.prim
        if engine.state is ServerState.REG_PRIM or not len(engine.queue):
            self._red_since = None
        elif self._red_since is None:
            self._red_since = clock()
