"""What replication over a partitioned network promises, checked from all replicas' records.

Written from the definitions of **transis**, with what no replica can know: the records of all of
them, in the order of true time.

- *global total order*: no position of the global order has two actions (slides 29, 31);
- *global FIFO order*: each creator's actions are in it in the order of their indices, none left
  out, none twice;
- *green prefix*: each replica marks green without gaps, and a life begins with what the one before
  had marked, unless its disk was lost;
- *one primary component*: no number has two, and each shares with the one before a quorum of that
  (slide 24, dynamic linear voting);
- *least size*: none has fewer members than the group was told to (`primary_min`), or than the group
  has, where members left until there are fewer;
- *ready on record*: who says that it is ready for a component has its attempt on record, so all
  members of one that is installed have (slide 30);
- *attempt protected*: who does not know what came of an attempt, because it crashed or is in case
  ?, holds a record of it until it knows (slide 32);
- *attempt excluded*: where somebody installed a component, nobody went through case 0 (slide 32);
- *yellow rule*: what one member of a primary component made green there, no other member missed
  that left it alive: it has it green or yellow, at the same place (slide 31);
- *green for ever*: what was green anywhere is in the order in the end;
- *white means all*: a replica believes an action to be green elsewhere only if it is (slide 29);
- *eventual path*: after an exchange each member holds all that any member held, and all that any
  member knew of others (slides 25-28);
- *availability*: members that hold a quorum, and are in no doubt, form a primary component;
- *on record everywhere*: what becomes green by its delivery is on record at all members of the
  component that live; with `sync = "turn"`, on their disks;
- *nothing of past lives is left*: when an action says that lives are over, whoever belongs to the
  group has nothing of theirs that is not green before it;
- *told right*: a final answer speaks of an action that is green at that position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from coterie.checking.coloured_servers import Attempt, Green, KnownServer, Said
from coterie.checking.history import Violation
from coterie.kernel.components import ActionId, Component, ServerMemory, no_component
from coterie.kernel.configuration import decode_change, follows
from coterie.kernel.past_lives import ALL, fold, is_before, number_of, past_lives_in
from coterie.kernel.records import (
    ActionsGreen,
    ActionsKnown,
    ComponentAttempted,
    ComponentInstalled,
    ComponentState,
    GreenLines,
    Replied,
    StateAdopted,
    StateDigest,
    StateEntered,
    TransitionalInstalled,
    ViewInstalled,
    WordGiven,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.engine import Past
    from coterie.kernel.records import Record
    from coterie.kernel.views import ChangedConfiguration, Configuration, Member, ViewId

VIOLATIONS_MAX = 20


class ColoursTracker:
    """Follows the records of one group."""

    def __init__(
        self, configuration: Configuration, *, keeps_all: bool = True, primary_min: int = 1
    ) -> None:
        self._keeps_all = keeps_all
        """Whether a life must begin with all that the one before had on record: what was not synced
        goes with the machine."""
        self.violations: list[Violation] = []
        self.has_lost = False
        """Whether an operator's word was needed, after which less is promised."""
        self.order: list[Green] = []
        """The global order, as far as anybody knows it."""
        self.words = 0
        self._configurations: list[tuple[int, Configuration]] = [(0, configuration)]
        """Who belongs to the group, from which position of the global order on."""
        self._changes: dict[ActionId, ChangedConfiguration] = {}
        """What actions would have the configuration be."""
        self._past: dict[ActionId, tuple[Member, ...]] = {}
        """Which lives actions say to be over."""
        self.late = 0
        """How many actions were red or yellow before anybody made them green."""
        self.past_lives = 0
        """How many lives were said to be over."""
        self._primary_min = primary_min
        self._last: dict[Member, int] = {}
        """For every creator, the index of its last action in the order."""
        self._servers = {id: KnownServer() for id in configuration.members}
        self._prims: dict[int, Component] = {0: no_component(configuration.members)}
        self._attempts: dict[ViewId, Attempt] = {}
        self._exchanges: dict[ViewId, Said] = {}
        self._aside: dict[ViewId, set[str]] = {}
        """Who found, after the exchange of a view, that it is not in a primary component."""
        self._digests: dict[int, tuple[bytes, str]] = {}
        self.greens_at: dict[int, int] = {}
        self.components = 0
        """How many primary components there were."""

    # ---- members

    def _server(self, id: str) -> KnownServer:
        return self._servers.setdefault(id, KnownServer())

    def _configuration_at(self, position: int) -> Configuration:
        """Give who belongs to the group by the first actions of the order."""
        return next(each for at, each in reversed(self._configurations) if at <= position)

    def _least_of(self, configuration: Configuration) -> int:
        """Give how many members a primary component of this group must have."""
        return min(self._primary_min, len(configuration.members))

    # ---- lives

    def inherit(self, member: Member, past: Past) -> None:
        """Learn with what a new life begins."""
        server = self._server(member.id)
        last = past.runs[-1].last_position if past.runs else past.position
        if past.more is None and (past.is_zombie or not server.has_been_ready):
            # Nobody rests on what it knew before it was ready for the first time.
            self._servers[member.id] = KnownServer(
                life=member, is_zombie=past.is_zombie, farthest=server.farthest
            )
            return
        server.life = member
        if last < server.end and self._keeps_all and not past.is_zombie:
            self._violate(
                "green prefix", f"{member} begins with {last} of {server.end} green actions"
            )
        server.end = last
        server.is_zombie = past.is_zombie
        server.state, server.view, server.is_ending = "", None, False
        server.farthest = max(server.farthest, last)
        more = past.more
        cut = dict(past.origins)
        for run in past.runs:
            cut[run.origin] = run.first + len(run.payloads) - 1
            fold(cut, past_lives_in(run.payloads[0]))
            # A turn may be on disk that nobody saw, because the process died as it was written.
            for offset, payload in enumerate(run.payloads):
                id = ActionId(run.origin, run.first + offset)
                green = Green(id, crc32(payload), run.view)
                self._learn(id, payload)
                self._place(run.position + offset, green, member)
        if isinstance(more, ServerMemory):
            for action in more.actions:
                cut[action.creator] = max(number_of(cut, action.creator), action.index)
                self._learn(action.id, action.command)
            # What it knew of others need not have been synced.
            server.lines = dict(more.lines)
            server.prim = more.promises.prim
            server.doubt = more.promises.vulnerable
            server.must_protect = server.doubt is not None
            server.has_been_ready |= server.must_protect
            if server.doubt is not None:  # that very record is on its disk, whoever was told of it
                self._attempt(server.doubt.attempt).ready.add(member.id)
            # The same holds of a component: it is installed once that is on one disk.
            if server.prim.index and not self._attempt(server.prim.attempt).installed:
                self._take_component(member, server.prim)
        missing = [str(who) for who, index in server.cut.items() if number_of(cut, who) < index]
        if missing and self._keeps_all and not past.is_zombie:
            self._violate("memory", f"{member} has forgotten actions of {', '.join(missing)}")
        server.cut = cut

    # ---- records

    def add(self, record: Record) -> None:  # noqa: C901, PLR0912 -- one case a kind
        """Take what a replica reported."""
        server = self._server(record.member.id)
        match record:
            case ViewInstalled():
                self._on_view(server, record)
            case TransitionalInstalled():
                server.is_ending = True
            case ActionsKnown(actions=actions):
                for action in actions:
                    self._on_known(server, record.member, action.id)
                    self._learn(action.id, action.command)
            case ActionsGreen():
                self._on_green(server, record)
            case StateAdopted():
                self._on_adopted(server, record)
            case ComponentState():
                self._on_component_state(server, record)
            case ComponentAttempted():
                server.prim = record.promises.prim
                server.doubt = record.promises.vulnerable
                server.has_been_ready = True
                self._attempt(record.view).ready.add(record.member.id)
            case ComponentInstalled():
                self._on_installed(server, record)
            case GreenLines():
                self._on_lines(server, record)
            case StateEntered():
                self._on_state(server, record)
            case StateDigest(position=position, digest=digest):
                known, by = self._digests.setdefault(position, (digest, str(record.member)))
                if known != digest and not self.has_lost:
                    self._violate(
                        "active replication",
                        f"after {position} actions, {by} and {record.member} differ",
                    )
            case Replied():
                self._on_replied(server, record)
            case WordGiven():
                self._on_word()
            case _:
                pass

    @property
    def newest(self) -> Component:
        """The last primary component that anybody installed."""
        return self._prims[max(self._prims)]

    def _on_view(self, server: KnownServer, record: ViewInstalled) -> None:
        server.view, server.members, server.is_ending = record.view, record.members, False

    def _on_known(self, server: KnownServer, member: Member, id: ActionId) -> None:
        if id.index != number_of(server.cut, id.creator) + 1:
            self._violate(
                "red cut",
                f"{member} took {id} after {number_of(server.cut, id.creator)} of its creator",
            )
        server.cut[id.creator] = max(id.index, number_of(server.cut, id.creator))

    def _on_green(self, server: KnownServer, record: ActionsGreen) -> None:
        if record.position != server.end + 1:
            self._violate(
                "green prefix",
                f"{record.member} marks {record.position} green after {server.end}",
            )
        if server.state == "RegPrim":
            self._check_record(server, record)
        else:
            self.late += max(record.position + len(record.actions) - 1 - len(self.order), 0)
        for offset, (id, digest) in enumerate(zip(record.actions, record.digests, strict=True)):
            green = Green(id, digest, record.view)
            self._place(record.position + offset, green, record.member)
            fold(server.cut, self._past.get(id, ()))
        server.end = record.position + len(record.actions) - 1
        server.farthest = max(server.farthest, server.end)

    def _check_record(self, server: KnownServer, record: ActionsGreen) -> None:
        prim = server.prim
        if prim is None or prim.attempt != server.view:
            return
        for member in server.members:
            other = self._server(member.id)
            if member.id not in prim.members or other.life != member:
                continue
            lacks = [id for id in record.actions if number_of(other.cut, id.creator) < id.index]
            if lacks:
                self._violate(
                    "on record everywhere",
                    f"{record.member} marks {lacks[0]} green, and {member} has it not on record",
                )

    def _place(self, position: int, green: Green, member: Member) -> None:
        """Learn that a replica has an action at a position of the order."""
        id = green.id
        if position <= len(self.order):
            known = self.order[position - 1]
            if (known.id, known.digest) != (id, green.digest):
                self._violate(
                    "global total order",
                    f"position {position} is {known.id}, and at {member} it is {id}",
                )
            return
        if position != len(self.order) + 1:
            self._violate(
                "green prefix", f"{member} has {position} where nobody has the one before"
            )
            return
        if id.index != self._last.get(id.creator, 0) + 1:
            self._violate(
                "global FIFO order",
                f"{member} marks {id} green after {self._last.get(id.creator, 0)} of its creator",
            )
        self._last[id.creator] = id.index
        self.order.append(green)
        self._check_past(position, self._past.get(id, ()))
        to = self._changes.get(id)
        if to is not None and follows(to, self._configurations[-1][1]):
            self._configurations.append((position, to))

    def _learn(self, id: ActionId, command: bytes) -> None:
        """Learn what an action says of the group itself, if it does."""
        to = decode_change(command)
        if to is not None:
            self._changes[id] = to
        lives = past_lives_in(command)
        if lives:
            self._past[id] = lives

    def _check_past(self, position: int, lives: tuple[Member, ...]) -> None:
        """Whoever belongs to the group has nothing of lives that are over but what is green."""
        everyone = self._configuration_at(position).everyone
        for life in lives:
            self.past_lives += 1
            for id in everyone:
                for who, index in self._server(id).cut.items():
                    if is_before(who, life) and self._last.get(who, 0) < index != ALL:
                        self._violate(
                            "nothing of past lives is left",
                            f"position {position} says that {life} is over, and {id} has {who} up "
                            f"to {index}, of which {self._last.get(who, 0)} are before",
                        )

    def _on_adopted(self, server: KnownServer, record: StateAdopted) -> None:
        if record.position > len(self.order):
            self._violate(
                "green prefix",
                f"{record.member} took over a state at {record.position} of {len(self.order)}",
            )
            return
        if not self.has_lost:
            expected: dict[Member, int] = {}
            for green in self.order[: record.position]:
                expected[green.id.creator] = green.id.index
                fold(expected, self._past.get(green.id, ()))
            if expected != dict(record.greens):
                self._violate(
                    "global total order",
                    f"{record.member} took over a state at {record.position} of other actions",
                )
        server.end = record.position
        server.farthest = max(server.farthest, server.end)
        for creator, index in record.greens:
            if index != ALL:
                server.cut[creator] = max(index, number_of(server.cut, creator))
        fold(server.cut, [creator for creator, index in record.greens if index == ALL])

    # ---- components

    def _attempt(self, view: ViewId) -> Attempt:
        return self._attempts.setdefault(view, Attempt())

    def _on_state(self, server: KnownServer, record: StateEntered) -> None:
        before, server.state = server.state, record.state
        id = record.member.id
        match before, record.state:
            case "No", "ExchangeStates":
                if server.doubt is not None:
                    self._attempt(server.doubt.attempt).failed.add(id)
                server.doubt = None
            case "TransPrim", "ExchangeStates":
                server.doubt = None
            case "Un", "ExchangeStates":
                server.must_protect = True
            case "ExchangeActions", "NonPrim" if not server.is_ending:
                self._check_availability(server, record)
            case "ExchangeActions", "Construct":
                self._check_path(server, record)

    def _on_component_state(self, server: KnownServer, record: ComponentState) -> None:
        promises = record.promises
        if server.state == "ExchangeStates":
            said = self._exchanges.setdefault(record.view, Said())
            if record.member not in said.cuts:
                said.cuts[record.member] = dict(server.cut)
                said.lines[record.member] = dict(server.lines)
        last = server.prim
        if (
            last is not None
            and promises.yellow is not None
            and record.member.id in self._attempt(last.attempt).installed
            and record.member.id not in self._attempt(last.attempt).left
            and server.state == "ExchangeStates"
        ):
            left = (record.position, promises.yellow.actions)
            self._attempt(last.attempt).left[record.member.id] = left
        if server.state == "ExchangeStates":
            doubt, server_holds = server.doubt, promises.vulnerable
            if server.must_protect and doubt is not None and not doubt.is_same(server_holds):
                self._violate(
                    "attempt protected",
                    f"{record.member} holds no record of the attempt {doubt.attempt}, and does not "
                    "know what came of it",
                )
            server.must_protect = False
        elif promises.prim != server.prim or promises.words == promises.prim.words:
            # What it has learned from others counts from now on, so it holds what they hold.
            self._check_path(server, record)
            if promises.vulnerable is None:
                server.doubt = None
        server.prim = promises.prim
        server.is_zombie = promises.is_zombie

    def _on_installed(self, server: KnownServer, record: ComponentInstalled) -> None:
        prim = record.promises.prim
        server.prim, server.is_zombie = prim, False
        server.doubt = record.promises.vulnerable or server.doubt
        self._take_component(record.member, prim)

    def _take_component(self, member: Member, prim: Component) -> None:
        """Learn that a replica has installed a component, by what it said or by its disk."""
        known = self._prims.setdefault(prim.index, prim)
        if known != prim:
            self._violate(
                "one primary component", f"{member} installs {prim}, and another is {known}"
            )
        if not self._attempt(prim.attempt).installed:
            self.components += 1
            before = self._prims.get(prim.index - 1)
            # Whoever is to go takes part in the attempt, and is not in what comes of it.
            voters = {*prim.members, *self._attempt(prim.attempt).ready}
            if before is None or not (self.has_lost or _has_quorum(before, voters)):
                self._violate("one primary component", f"{prim} has no quorum of {before}")
            if len(set(prim.members)) < len(prim.members):
                self._violate("one primary component", f"{prim} counts a member twice")
            least = self._least_of(self._configuration_at(self._server(member.id).end))
            if len(prim.members) < least:
                self._violate("least size", f"{prim} has fewer than {least} members")
        attempt = self._attempt(prim.attempt)
        unready = [each for each in prim.members if each not in attempt.ready]
        if unready:
            self._violate(
                "ready on record",
                f"{member} installs {prim}, and {', '.join(unready)} had not been ready",
            )
        attempt.component = prim
        attempt.installed.add(member.id)

    def _check_path(self, server: KnownServer, record: StateEntered | ComponentState) -> None:
        said = self._exchanges.get(record.view, Said())
        for other, cut in said.cuts.items():
            if other not in server.members:
                continue
            lacks = [str(who) for who, index in cut.items() if number_of(server.cut, who) < index]
            if lacks:
                self._violate(
                    "eventual path",
                    f"{record.member} lacks actions of {', '.join(lacks)} that {other} had",
                )
            now = self._configuration_at(server.end)
            behind = [
                who
                for who, at in said.lines[other].items()
                if server.lines.get(who, 0) < at and who in now.everyone
            ]
            if behind:
                self._violate(
                    "eventual path",
                    f"{record.member} does not know what {other} did of {', '.join(behind)}",
                )

    def _check_availability(self, server: KnownServer, record: StateEntered) -> None:
        members = [self._servers[each.id] for each in server.members]
        prim = self.newest
        now = self._configuration_at(server.end)
        if record.member.id not in {*now.members, *now.before}:
            return  # a learner: others go on without it
        sound = [each.id for each in server.members if not self._servers[each.id].is_zombie]
        aside = self._aside.setdefault(record.view, set())
        aside.add(record.member.id)
        rest = [each.id for each in server.members if each.id not in aside]
        if _has_quorum(prim, [id for id in rest if id in sound]) and (
            sum(id in now.members for id in rest) >= self._least_of(now)
        ):
            return  # the others can go on without it, or one of them will be the last to stay out
        knows = any(each.prim == prim for each in members) or prim.index == 0
        doubting = any(
            each.doubt is not None and not self._is_over(each, members) for each in members
        )
        is_large = sum(each.id in now.members for each in server.members) >= self._least_of(now)
        if knows and not doubting and is_large and _has_quorum(prim, sound):
            self._violate(
                "availability",
                f"{record.member} stays out of a primary component, although {', '.join(sound)}"
                f" hold a quorum of {prim}",
            )

    def _is_over(self, server: KnownServer, members: Iterable[KnownServer]) -> bool:
        """Say whether somebody among members knows a component that came instead of an attempt."""
        doubt = server.doubt
        assert doubt is not None, "it is in doubt"
        return any(
            other.prim is not None
            and other.prim.index > doubt.index
            and other.prim.attempt != doubt.attempt
            for other in members
        )

    # ---- the rest

    def _on_lines(self, server: KnownServer, record: GreenLines) -> None:
        server.lines = dict(record.lines)
        everyone = self._configuration_at(server.end).everyone
        for id, position in (*record.lines, *((id, record.white) for id in everyone)):
            if position > self._server(id).farthest and not self.has_lost:
                self._violate(
                    "white means all",
                    f"{record.member} believes {position} actions to be green at {id}, and it "
                    f"marked {self._server(id).farthest}",
                )

    def _on_replied(self, server: KnownServer, record: Replied) -> None:
        for reply in record.replies:
            if reply.standing.is_final and reply.position > server.end:
                self._violate(
                    "told right",
                    f"{record.member} answered {reply.session}/{reply.request} for good, at "
                    f"{reply.position} of {server.end}",
                )

    def _on_word(self) -> None:
        """What nobody remembers is lost: an operator said so."""
        self.words += 1
        self.has_lost = True
        known = max(server.end for server in self._servers.values())
        for green in reversed(self.order[known:]):
            self._last[green.id.creator] = green.id.index - 1
        del self.order[known:]
        self._configurations = [each for each in self._configurations if each[0] <= known]
        last = max(
            (server.prim.index for server in self._servers.values() if server.prim is not None),
            default=0,
        )
        for index in [index for index in self._prims if index > last]:
            del self._prims[index]

    def disk_was_changed(self, id: str) -> None:
        """Learn that an old copy is in the place of a disk: whatever follows is damage."""
        del id
        self.has_lost = True

    def finish(self, replay: object = None) -> None:
        """Check what can be judged at the end only."""
        del replay
        for view, attempt in self._attempts.items():
            if attempt.installed and attempt.failed:
                self._violate(
                    "attempt excluded",
                    f"{', '.join(sorted(attempt.installed))} installed {view}, and "
                    f"{', '.join(sorted(attempt.failed))} went through case 0",
                )
        if not self.has_lost:
            self._check_yellow()

    def _check_yellow(self) -> None:
        ends: dict[ViewId, int] = {}
        for position, green in enumerate(self.order, start=1):
            ends[green.component] = position
        for view, attempt in self._attempts.items():
            for id, (position, yellow) in attempt.left.items():
                for place in range(position + 1, ends.get(view, 0) + 1):
                    offset = place - position - 1
                    green = self.order[place - 1]
                    if offset >= len(yellow) or yellow[offset] != green.id:
                        self._violate(
                            "yellow rule",
                            f"{green.id} became green at {place} in {view}, and {id} left it "
                            "without it",
                        )
                        break

    @property
    def is_known_to_all(self) -> bool:
        """Whether every replica has marked everything green that anybody has."""
        now = self._configurations[-1][1]
        return all(self._server(id).end == len(self.order) for id in now.everyone)

    def _violate(self, check: str, evidence: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(check, evidence))


def _has_quorum(prim: Component, replicas: Iterable[str]) -> bool:
    """Say whether replicas are more than half of a component, or half with its first member."""
    here = set(replicas)
    count = sum(each in here for each in prim.members)
    if 2 * count == len(prim.members):
        return prim.members[0] in here
    return 2 * count > len(prim.members)
