"""The fault menu, and the one who orders from it.

Every fault is a function that does something to a group and gives back how to end it. The
nemesis draws faults at random, several a second, each for a random while, so that they overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.simulation.disk_faults import DISK_FAULTS, LOSSES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from coterie.simulation.group import Group
    from coterie.simulation.host import Host
    from coterie.simulation.network import Link


def _nothing() -> None:
    pass


def _cut(group: Group, links: list[Link]) -> Callable[[], None]:
    group.simulation.network.cut(links)
    return lambda: group.simulation.network.mend(links)


def _split(group: Group, random: Random) -> tuple[list[str], list[str]]:
    names = list(group.hosts)
    random.shuffle(names)
    place = random.randrange(1, len(names)) if len(names) > 1 else 1
    return names[:place], names[place:]


def _some_host(group: Group, random: Random) -> Host:
    return group.hosts[random.choice(list(group.hosts))]


def loss(group: Group, random: Random) -> Callable[[], None]:
    """Lose some of all frames."""
    network = group.simulation.network
    amount = random.choice([0.01, 0.05, 0.2, 0.5])
    network.loss = amount

    def undo() -> None:
        network.loss = 0.0

    return undo


def duplication(group: Group, random: Random) -> Callable[[], None]:
    """Double some of all frames."""
    network = group.simulation.network
    network.duplication = random.choice([0.05, 0.3])

    def undo() -> None:
        network.duplication = 0.0

    return undo


def damage(group: Group, random: Random) -> Callable[[], None]:
    """Flip a bit in some of all frames."""
    network = group.simulation.network
    network.damage = random.choice([0.01, 0.1])

    def undo() -> None:
        network.damage = 0.0

    return undo


def delay(group: Group, random: Random) -> Callable[[], None]:
    """Make all frames late."""
    network = group.simulation.network
    network.delay_min = random.choice([1_000, 10_000, 80_000])

    def undo() -> None:
        network.delay_min = 50

    return undo


def reordering(group: Group, random: Random) -> Callable[[], None]:
    """Make frames overtake each other."""
    network = group.simulation.network
    network.delay_spread = random.choice([2_000, 20_000, 100_000])

    def undo() -> None:
        network.delay_spread = 100

    return undo


def clogging(group: Group, random: Random) -> Callable[[], None]:
    """Hold back everything on a few links, then let it go at once."""
    names = list(group.hosts)
    links = [
        (one, other)
        for one in names
        for other in names
        if one != other and random.random() < 0.2  # noqa: PLR2004 -- a few
    ]
    network = group.simulation.network
    network.clog(links)
    return lambda: network.unclog(links, group.arrive)


def partition(group: Group, random: Random) -> Callable[[], None]:
    """Cut the group in two."""
    return _cut(group, group.links_between(*_split(group, random)))


def one_way(group: Group, random: Random) -> Callable[[], None]:
    """Cut some links in one direction only."""
    mine, others = _split(group, random)
    return _cut(group, [(one, other) for one in mine for other in others])


def non_transitive(group: Group, random: Random) -> Callable[[], None]:
    """Cut two replicas off from each other while both reach the rest."""
    names = list(group.hosts)
    if len(names) < 3:  # noqa: PLR2004 -- there is no rest
        return _nothing
    one, other = random.sample(names, 2)
    return _cut(group, [(one, other), (other, one)])


def isolation(group: Group, random: Random) -> Callable[[], None]:
    """Cut one replica off from all others."""
    lone = random.choice(list(group.hosts))
    rest = [name for name in group.hosts if name != lone]
    return _cut(group, group.links_between([lone], rest))


def flapping(group: Group, random: Random) -> Callable[[], None]:
    """Cut and mend the same links again and again."""
    links = group.links_between(*_split(group, random))
    network = group.simulation.network
    period = random.choice([50_000, 200_000, 600_000])
    state = {"flaps": True, "is_cut": False}

    def flap() -> None:
        if not state["flaps"]:
            return
        (network.mend if state["is_cut"] else network.cut)(links)
        state["is_cut"] = not state["is_cut"]
        group.simulation.at(period, flap)

    flap()

    def undo() -> None:
        state["flaps"] = False
        if state["is_cut"]:
            network.mend(links)

    return undo


def crash(group: Group, random: Random) -> Callable[[], None]:
    """Kill a replica's process; it comes back with a new life later."""
    host = _some_host(group, random)
    host.crash()
    return host.start


def kill(group: Group, random: Random) -> Callable[[], None]:
    """Kill a process on a machine with several cohorts; what they wrote stays."""
    host = _some_host(group, random)
    if host.is_damaged and not group.may_forget(host):
        return _nothing
    host.kill()
    return host.start


def restart(group: Group, random: Random) -> Callable[[], None]:
    """Kill a replica's process and start it again at once."""
    host = _some_host(group, random)
    host.restart()
    return _nothing


def restart_all(group: Group, random: Random) -> Callable[[], None]:
    """Kill and restart every process at the same moment."""
    del random
    for host in group.hosts.values():
        host.restart()
    return _nothing


def pause(group: Group, random: Random) -> Callable[[], None]:
    """Make a replica stand still for a while."""
    host = _some_host(group, random)
    host.pause()
    return host.resume


def slow(group: Group, random: Random) -> Callable[[], None]:
    """Make a replica slow."""
    host = _some_host(group, random)
    host.slowness = random.choice([5_000, 50_000, 200_000])

    def undo() -> None:
        host.slowness = 0

    return undo


def suspicion(group: Group, random: Random) -> Callable[[], None]:
    """Make a replica believe for a moment that another is dead."""
    host = _some_host(group, random)
    others = [name for name in group.hosts if name != host.id]
    if others:
        host.suspect(random.choice(others))
    return _nothing


def clock_jump(group: Group, random: Random) -> Callable[[], None]:
    """Make a clock jump."""
    host = _some_host(group, random)
    host.jump_clock(Duration(random.choice([-1, 1]) * random.randrange(10_000_000)))
    return _nothing


def clock_drift(group: Group, random: Random) -> Callable[[], None]:
    """Make a clock run fast or slow."""
    host = _some_host(group, random)
    host.set_drift(random.choice([0.8, 0.95, 1.05, 1.25]))
    return lambda: host.set_drift(1.0)


def leave(group: Group, random: Random) -> Callable[[], None]:
    """Have a replica leave in good order; it joins again with a new life later."""
    host = _some_host(group, random)
    host.leave()

    def come_back() -> None:
        if host.is_leaving:
            host.restart()

    return come_back


Fault = Callable[["Group", "Random"], Callable[[], None]]

FAULTS: dict[str, Fault] = {
    "loss": loss,
    "duplication": duplication,
    "damage": damage,
    "delay": delay,
    "reordering": reordering,
    "clogging": clogging,
    "partition": partition,
    "one-way": one_way,
    "non-transitive": non_transitive,
    "isolation": isolation,
    "flapping": flapping,
    "crash": crash,
    "restart": restart,
    "restart-all": restart_all,
    "pause": pause,
    "slow": slow,
    "suspicion": suspicion,
    "clock-jump": clock_jump,
    "clock-drift": clock_drift,
    "leave": leave,
    **DISK_FAULTS,
    **LOSSES,
    "kill": kill,
}

RARE = {
    "restart-all": 0.1,
    "leave": 0.5,
    "restart": 0.5,
    "power-all": 0.1,
    "bit-flip": 0.3,
    "new-machine": 0.3,
    "failing-sync": 0.3,
    "amnesia": 0.1,
    "old-disk": 0.3,
}
"""Faults that would drown the others if they came as often."""


_OF_JOURNALS = DISK_FAULTS.keys() | LOSSES.keys()
OF_MACHINES = frozenset({"kill"})
"""Faults that mean something only where `crash` is the death of a machine."""


class Nemesis:
    """Draws faults at random while it is active."""

    def __init__(self, group: Group, random: Random, kinds: Sequence[str]) -> None:
        self._group = group
        self._random = random
        has_journal = group.has_journals
        self._kinds = [kind for kind in kinds if has_journal or kind not in _OF_JOURNALS]
        self._weights = [RARE.get(kind, 1.0) for kind in self._kinds]
        self._is_active = bool(self._kinds)
        self._undo: dict[int, Callable[[], None]] = {}
        self._serial = 0
        self.counts: dict[str, int] = {}
        # Some runs are wild, some nearly calm: rare orders of events need both.
        self._pace = random.choice([milliseconds(120), milliseconds(350), seconds(1)])
        self._stay = random.choice([milliseconds(150), milliseconds(600), seconds(2)])

    def start(self) -> None:
        """Begin."""
        self._next()

    def stop(self) -> None:
        """End all faults."""
        self._is_active = False
        for serial in sorted(self._undo):
            self._undo.pop(serial)()

    def _next(self) -> None:
        if not self._is_active:
            return
        simulation = self._group.simulation
        kind = self._random.choices(self._kinds, self._weights)[0]
        simulation.note(f"fault: {kind}")
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._serial += 1
        self._undo[self._serial] = FAULTS[kind](self._group, self._random)
        stay = int(self._random.expovariate(1 / self._stay))
        simulation.at(min(stay, 5 * self._stay), self._end, self._serial, kind)
        simulation.at(int(self._random.expovariate(1 / self._pace)), self._next)

    def _end(self, serial: int, kind: str) -> None:
        undo = self._undo.pop(serial, None)
        if undo is not None:
            self._group.simulation.note(f"over: {kind}")
            undo()
