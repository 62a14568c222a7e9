"""Protocol traces that read like the figures of the papers, kept as text in figures/.

Whoever changes a protocol sees here, in words, what has changed in it. If that is what was meant,

    pytest tests/papers/test_figures.py --record-figures

writes the files anew; the change is then reviewed as any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.papers.drawing import Drawing
from tests.papers.words import of_cohort, of_colours, of_program, of_server, of_stack
from tests.vsr.bank_world import EU, US, BankWorld, is_committed

from coterie.kernel.clock import milliseconds, seconds
from coterie.llft.settings import Guard
from coterie.replication.onus import onus
from coterie.simulation import Simulation
from coterie.simulation.engines.colours.group import ColoursSimulation
from coterie.simulation.engines.llft.world import ProgramWorld
from coterie.simulation.engines.servers.trial import ServerGroup, ServerSimulation
from coterie.simulation.engines.stack.clients import SimulatedObject

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.objects import ObjectHost
    from coterie.simulation import Group
    from coterie.simulation.engines.colours.group import ColoursGroup

FOLDER = Path(__file__).parent / "figures"


# ---- **objects**


def stack(names: str, kind: str = "PRIMARY:DYNSEQ:VSYNC") -> tuple[Group, Drawing]:
    """A group that is about to start, and the figure of it."""
    drawing = Drawing(of_stack, {})
    group = Simulation(seed=1, stack=kind).group(*names)
    drawing.watch(group)
    return group, drawing


def first_primary_view() -> Drawing:
    """**objects**, figures 11 to 13: two replicas start, find each other and form a primary view.

    Neither has a history, so nothing is transferred. The view is primary once acceptances of a
    majority have been delivered in its order.
    """
    group, drawing = stack("pq")
    with drawing.drawn():
        group.run_until_whole()
        group.run(milliseconds(20))
    return drawing


def merge_and_state_transfer() -> Drawing:
    """**objects**, figure 2: views merge, and who was away fetches what it has missed.

    r was cut off while p and q took two entries. The joint view is primary at once, by p and q; r
    learns, and counts from its ordered acceptance on, the paper's xfer_done.
    """
    group, drawing = stack("pqr")
    group.run_until_whole()
    group.partition("pq", "r")
    group.run(seconds(2))
    group["p"].propose(b"one")
    group["q"].propose(b"two")
    group.run(seconds(1))
    with drawing.drawn():
        group.simulation.network.mend(group.links_between("pq", "r"))
        group.run_until_whole()
        group.run(milliseconds(30))
    return drawing


def who_forgot_does_not_count() -> Drawing:
    """**objects**, figure 3: p and q are primary; q loses its memory and meets r without p.

    q and r are two of three, and the paper's naive rule would make them a primary view whose
    state is older than what p and q had made authoritative. The recovery bit says that q is a
    zombie, so they wait.
    """
    group, drawing = stack("pqr")
    group.partition("pq", "r")
    group.run(seconds(2))
    group["p"].propose(b"one")
    group.run(seconds(1))
    with drawing.drawn():
        group["q"].replace_machine()
        group.partition("p", "qr")
        group.simulation.network.mend(group.links_between("q", "r"))
        group["q"].start()
        group.run(seconds(2))
    return drawing


def global_safety() -> Drawing:
    """**objects**, figures 14 and 15: an entry is delivered once a majority has it.

    p is the sequencer. q casts; p puts the entry into the order; each writes it down before it
    says that it has it; what a majority has is settled.
    """
    group, drawing = stack("pqr", "SAFE:PRIMARY:DYNSEQ:VSYNC")
    group.run_until_whole()
    group.run(seconds(1))
    with drawing.drawn():
        group["q"].propose(b"one")
        group.run(milliseconds(30))
    return drawing


# ---- **transis**


def safe_delivery_in_a_partition() -> Drawing:
    """**transis**, slides on extended virtual synchrony: a safe message meets a partition.

    a casts it, and c is cut off before b or a can know that c has it. So it is not delivered in
    the regular view {a,b,c}, but in its transitional part, whose members a and b both have it.
    """
    group, drawing = stack("abc", "DYNSEQ:VSYNC")
    group.run_until_whole()
    group.run(seconds(1))
    with drawing.drawn():
        group.partition("ab", "c")
        group["a"].cast(b"one", safe=True)
        group.run(seconds(1))
    return drawing


# ---- **transis**, replication


def colours(names: str) -> tuple[ColoursGroup, Drawing]:
    """A primary component of all, and the figure of it."""
    drawing = Drawing(of_colours, {})
    group = ColoursSimulation(seed=1, stack="COLOURS:DYNSEQ:VSYNC").group(*names)
    drawing.watch(group)
    assert group.run_until(lambda: group.is_one, within=seconds(5))
    return group, drawing


def both_sides_of_a_partition() -> Drawing:
    """**transis**, slides 29 to 32: both sides take actions, and one order comes out.

    a and b hold a quorum of the last primary component and make x green when all of them have it.
    c marks y red. When they meet, each tells its state, then gives what the others lack; all say
    that they are ready, on disk first, and the last of these words makes y green.
    """
    group, drawing = colours("abc")
    with drawing.drawn():
        group.partition("ab", "c")
        group.run(milliseconds(600))
        group["b"].propose(b"x")
        group["c"].propose(b"y")
        group.run(milliseconds(300))
        group.simulation.network.mend(group.links_between("ab", "c"))
        assert group.run_until(lambda: group.is_one, within=seconds(5))
        group.run(milliseconds(20))
    return drawing


def who_crashed_in_the_primary_component_waits() -> Drawing:
    """**transis**, slide 32: who crashed in a primary component does not know what became green.

    b and c crash, and a makes nothing green without them; but they cannot know that. Together
    they are two of three, and still no primary component, until a comes, who left it alive.
    """
    group, drawing = colours("abc")
    with drawing.drawn():
        group.partition("a", "bc")
        group["b"].crash()
        group["c"].crash()
        group["b"].start()
        group["c"].start()
        group.run(milliseconds(700))
        group.simulation.network.mend(group.links_between("a", "bc"))
        assert group.run_until(lambda: group.is_one, within=seconds(5))
    return drawing


# ---- **rsp**

CLIENT = 7
ADD_ONE = msgspec.msgpack.encode((1,))


def servers(names: str) -> tuple[ServerGroup, Drawing]:
    """A server group, and the figure of it: its client's messages are drawn, too."""
    drawing = Drawing(of_server, {})
    simulation = ServerSimulation(
        seed=1, stack="ONUS:SAFE:DYNSEQ:PVSYNC", has_object=True, object_kind="counter"
    )
    group = ServerGroup(simulation, "group", names)
    drawing.watch(group)
    group.run_until_whole()
    group.run(seconds(1))
    for host in group:
        assert isinstance(host.ledger, SimulatedObject)
        _draw_replies(drawing, host.id, host.ledger)
    return group, drawing


def _draw_replies(drawing: Drawing, id: str, replies: SimulatedObject) -> None:
    release = replies.release_answers

    def released() -> None:
        for answer in replies._ready:
            drawing.says(id, ["client"], f"reply to {answer.session}/{answer.request}")
        release()

    replies.release_answers = released  # type: ignore[method-assign]


def ask(group: ServerGroup, drawing: Drawing, *to: str) -> None:
    """Have the client send its request, which reaches these replicas."""

    def take(host: ObjectHost) -> None:
        host.request(CLIENT, 1, "add", ADD_ONE, relay=False)

    drawing.says("client", list(to), f"request {CLIENT}/1 add")
    for id in to:
        group[id].ask(take)


def one_speaks_for_all() -> Drawing:
    """**rsp**, figures 3 and 4: all receive a request, one synchronises it, and one answers.

    The function onus(client, view) names the same replica everywhere. It puts the request into
    the order; what a majority has is executed by all, and only that replica's output is enabled.
    """
    group, drawing = servers("abc")
    with drawing.drawn():
        ask(group, drawing, "a", "b", "c")
        group.run(milliseconds(60))
    return drawing


def who_has_the_onus_missed_the_request() -> Drawing:
    """**rsp**, figure 3, the time-out: who should synchronise a request has not received it.

    Whoever holds it sends it to the others once it has waited too long.
    """
    group, drawing = servers("abc")
    with drawing.drawn():
        ask(group, drawing, *(id for id in "abc" if id != speaker(group)))
        group.run(seconds(1))
    return drawing


def the_onus_is_evaluated_again() -> Drawing:
    """**rsp**, figure 7: who has the onus is lost, and a view without it is installed.

    The others hold the request in their buffers; in the new view another one has the onus.
    """
    group, drawing = servers("abc")
    gone = speaker(group)
    with drawing.drawn():
        group[gone].crash()
        ask(group, drawing, *(id for id in "abc" if id != gone))
        group.run(seconds(2))
    return drawing


def speaker(group: ServerGroup) -> str:
    place = next(iter(group)).place
    assert place is not None
    return onus(CLIENT, place[1]).id


# ---- **llft**


def program() -> tuple[ProgramWorld, Drawing]:
    """A program with three replicas behind an edge, and the figure of it with a client."""
    drawing = Drawing(of_program, {"y": "edge"})
    world = ProgramWorld(seed=1, program="counter", replicas=3, guard=Guard.QUORUM)
    drawing.watch(world)
    world.wrote_to = lambda conn, data, _rest: drawing.says(
        "edge", ["client"], f"{len(data)} bytes on {conn}"
    )
    world.start()
    assert world.run_until(lambda: world.is_whole("counter"), within=seconds(5))
    world.run(milliseconds(500))
    return world, drawing


def write(world: ProgramWorld, drawing: Drawing) -> None:
    """Have a client open a connection and write a request."""
    edge = world.edge("counter")
    assert edge is not None

    def take() -> None:
        edge.open("x")
        edge.take("x", bytes(8))

    drawing.says("client", ["edge"], "8 bytes on x")
    world.machines["y"].call(take)


def leader_of(world: ProgramWorld) -> str:
    return next(each.me.id for each in world.replicas_of("counter") if each.leading is not None)


def what_the_leader_did_is_ordered() -> Drawing:
    """**llft**, section III: the primary executes and orders, its backups follow.

    The edge stores each order before it lets the output go that rests on it, and reflects it to the
    backups, which do as the primary did.
    """
    world, drawing = program()
    with drawing.drawn():
        write(world, drawing)
        world.run(milliseconds(60))
    return drawing


def a_backup_becomes_the_primary() -> Drawing:
    """**llft**, figures 8 and 9: the primary is lost, and a backup takes over in two phases.

    It claims the next view and hears how far the others' orders go; the edge fences the claims
    before it and says what it has stored. VIEW is the order from which on the new view is in force.
    """
    world, drawing = program()
    with drawing.drawn():
        world.machines[leader_of(world)].crash()
        world.run(milliseconds(600))
    return drawing


def a_replica_joins() -> Drawing:
    """**llft**, section IV-C: a replica that comes back is somebody new, and proposes itself.

    It is put on the roster, and counts when it is whole, by an order as well.
    """
    world, drawing = program()
    gone = next(id for id in "abc" if id != leader_of(world))
    world.machines[gone].crash()
    world.run(seconds(2))
    with drawing.drawn():
        world.machines[gone].start()
        world.run(milliseconds(200))
    return drawing


# ---- **vsr**


def bank() -> tuple[BankWorld, Drawing]:
    """Two groups of three cohorts, eu and us, and a client."""
    names = {id: f"eu.{id}" for id in "abc"} | {id: f"us.{id}" for id in "fgh"} | {"x": "client"}
    drawing = Drawing(of_cohort, names)
    world = BankWorld()
    drawing.watch(world)
    story = world.story()  # everybody knows by now who leads
    story.call(EU, "balance", "alice")
    story.call(US, "balance", "bob")
    story.commit()
    world.run(seconds(2))
    return world, drawing


def view_change() -> Drawing:
    """**vsr**, figure 5: the primary is lost, and a backup becomes the manager of a new view.

    The invitation is on record before it leaves, and so is each acceptance: a cohort that has
    promised itself to a view may not forget it (a departure from the paper). Two of three are a
    majority; the one that knows most leads.
    """
    world, drawing = bank()
    with drawing.drawn():
        world.machines["a"].crash()
        world.run(milliseconds(600))
    return drawing


def view_change_with_one_that_forgot() -> Drawing:
    """**vsr**, figure 5, the other arm: a cohort that has lost its state accepts as crashed.

    A backup is restarted. The primary goes on without it, hears that a new life has come, and
    invites to a view with it. c may not count for what it knew; the view is formed because a and
    b accept normally, the old primary among them, and then c fetches the state.
    """
    world, drawing = bank()
    with drawing.drawn():
        world.machines["c"].restart()
        world.run(milliseconds(600))
    return drawing


def two_phase_commit() -> Drawing:
    """**vsr**, figures 2 and 3: a transaction over two groups, of which eu coordinates.

    Each call leaves a completed-call in the buffer and its viewstamp in the pset. Prepare forces
    what the pset names, the decision is an event that is forced, and the participants are told.
    """
    world, drawing = bank()
    with drawing.drawn():
        story = world.story()
        story.call(EU, "withdraw", "alice", 10)
        story.call(US, "deposit", "bob", 10)
        assert is_committed(story.commit())
        world.run(milliseconds(30))
    return drawing


def a_lost_call_aborts() -> Drawing:
    """**vsr**, figure 3, step 2 of prepare: a call that a view change has lost is found missing.

    The primary of us answers the call and is lost before any backup has heard of it. The new
    primary finds that the pset is not compatible with its history, and refuses.
    """
    world, drawing = bank()
    with drawing.drawn():
        story = world.story()
        story.call(EU, "withdraw", "alice", 10)
        world.simulation.network.cut([("f", "g"), ("f", "h")])
        story.call(US, "deposit", "bob", 10)
        world.machines["f"].crash()
        world.run(seconds(1))
        story.commit()
        world.run(milliseconds(30))
    return drawing


FIGURES = (
    first_primary_view,
    merge_and_state_transfer,
    who_forgot_does_not_count,
    global_safety,
    safe_delivery_in_a_partition,
    both_sides_of_a_partition,
    who_crashed_in_the_primary_component_waits,
    what_the_leader_did_is_ordered,
    a_backup_becomes_the_primary,
    a_replica_joins,
    one_speaks_for_all,
    who_has_the_onus_missed_the_request,
    the_onus_is_evaluated_again,
    view_change,
    view_change_with_one_that_forgot,
    two_phase_commit,
    a_lost_call_aborts,
)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.__name__)
def test_the_figure_is_as_it_was(
    figure: Callable[[], Drawing], pytestconfig: pytest.Config
) -> None:
    title = "\n".join(line.strip() for line in (figure.__doc__ or "").strip().splitlines())
    drawn = f"{title}\n\n{figure()}\n"
    file = FOLDER / f"{figure.__name__}.txt"
    if pytestconfig.getoption("record_figures"):
        file.write_text(drawn, encoding="utf-8")
    assert drawn == file.read_text(encoding="utf-8")


def test_every_file_is_of_a_figure() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == {figure.__name__ for figure in FIGURES}
