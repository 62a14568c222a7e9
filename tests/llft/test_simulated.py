"""Programs in the simulator: the command, repeating runs, and orders of events that were bugs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.broken.llft_variants import AS_FOUND, EqualViewsFollow, OpensWhatIsGone

from coterie.cli.main import main
from coterie.kernel.claims import OrderKind, PrimaryClaim
from coterie.kernel.clock import milliseconds, seconds
from coterie.llft.edge import Edge
from coterie.llft.following import ReplicaStanding
from coterie.llft.messages import CarriedBytes, CarryBytes, NewPrimaryView
from coterie.llft.replica import ProgramReplica
from coterie.llft.settings import Guard
from coterie.simulation import SeedRun, run_seed
from coterie.simulation.engines import FAMILIES, SIMULATED_ONLY
from coterie.simulation.engines.llft.clients import ProgramClients
from coterie.simulation.engines.llft.programs import CounterProgram
from coterie.simulation.engines.llft.trial import ProgramOptions, ProgramTrial
from coterie.simulation.engines.llft.world import ProgramWorld

SIM = ("sim", "--engine", "llft", "--jobs", "1")


def run(
    seed: int, *, program: str = "counter", guard: str = "quorum", duration: int = 10
) -> SeedRun:
    options = ProgramOptions(program=program, guard=guard, duration=seconds(duration), **AS_FOUND)
    return run_seed(seed, options)


def test_it_is_known_to_the_simulator_alone() -> None:
    assert "llft" in SIMULATED_ONLY
    assert not SIMULATED_ONLY.keys() & FAMILIES.keys()


def test_a_relay_runs_from_the_command_line_and_repeats_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--program", "relay", "--guard", "quorum", "--seed", "3", "--duration", "2")
    traces = []
    for _ in range(2):
        assert main([*SIM, *words, "--trace"]) == 0
        traces.append(capsys.readouterr().out)
    assert traces[0] == traces[1]
    assert " leads by " in traces[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--program pong",
            "--program pong is not there: choose relay or counter or timers or pages or errands",
        ),
        ("--backups idle", "--backups idle is not there: choose active or logged"),
        ("--guard half", "--guard half is not there: choose quorum or none"),
        ("--faults bit-flip", "no fault 'bit-flip' for --engine llft"),
    ],
)
def test_the_simulator_says_what_is_not_built(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SIM, "--seeds", "1", *words.split()]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(2, id="a state for one that was merely behind is no branch given up"),
        pytest.param(11, id="a primary asks for inputs that were lost on their way to it"),
        pytest.param(17, id="who lacks inputs that the edge has freed needs a state"),
        pytest.param(25, id="no two views of one number behind each other"),
    ],
)
def test_what_was_broken_once(seed: int) -> None:
    assert not run(seed).violations


@pytest.mark.parametrize(
    ("program", "seed"),
    [
        pytest.param("counter", 18, id="what a life knew is forgotten with its branch"),
        pytest.param("counter", 45, id="a state before all orders belongs to no branch"),
        pytest.param("counter", 91, id="who lacks input that nobody has needs a state"),
        pytest.param("counter", 100, id="a fence for a proposer that began without the answer"),
        pytest.param("counter", 112, id="a branch that begins behind what the edge has of it"),
        pytest.param("counter", 135, id="orders fit one history only"),
        pytest.param("counter", 1199, id="output rests on an order of its own branch"),
        pytest.param("counter", 1339, id="somebody's branch goes on where nobody can follow"),
        pytest.param("counter", 1379, id="an answer to a proposer is none to a leader"),
        pytest.param("counter", 20170057, id="a branch may begin behind orders of yet another"),
        pytest.param("relay", 8, id="what was not read of a broken connection is void"),
        pytest.param("relay", 17, id="the next leader sends what the last one produced"),
    ],
)
def test_what_was_broken_without_a_guard(program: str, seed: int) -> None:
    assert not run(seed, program=program, guard="none", duration=8).violations


@pytest.mark.parametrize(
    ("program", "guard", "seed"),
    [
        pytest.param("counter", "none", 20170019, id="what the edge said before it gave way"),
        pytest.param("counter", "none", 20170062, id="older claims' orders are stored, too"),
        pytest.param("timers", "quorum", 20170026, id="nobody sees a turn that was not written"),
        pytest.param("pages", "quorum", 20170034, id="a state may have forgotten a connection"),
    ],
)
def test_what_was_broken_in_longer_runs(program: str, guard: str, seed: int) -> None:
    assert not run(seed, program=program, guard=guard, duration=20).violations


def test_who_does_not_wait_is_told_to_try_again_and_hangs_up_behind_the_answer() -> None:
    trial = ProgramTrial(1, ProgramOptions(program="pages", faults=()))
    world, clients = trial.world, trial.clients
    clients.start()
    assert world.run_until(lambda: clients.answered > 300, within=seconds(30))
    kinds = [order.kind for _, order in world.trackers["pages"].chain]
    assert kinds.count(OrderKind.AGAIN) > 0
    assert kinds.count(OrderKind.CLOSED) >= 300
    # What is closed is forgotten: at the edge, at replicas, and in what they keep.
    edge = world.edge("pages")
    assert edge is not None
    assert len(edge.lines) < 100
    for replica in world.replicas_of("pages"):
        execution = replica.execution
        assert len(execution.ended) + len(execution.produced) + len(replica.delivered) < 300
    assert not trial.violations()


def test_connections_between_programs_are_forgotten_at_both_edges() -> None:
    """A program calls another for each request, and hangs up: memory does not grow with that."""
    trial = ProgramTrial(1, ProgramOptions(program="errands", faults=()))
    world, clients = trial.world, trial.clients
    clients.start()
    assert world.run_until(lambda: clients.answered > 300, within=seconds(60))
    errands, desk = world.edge("errands"), world.edge("desk")
    assert errands is not None
    assert desk is not None
    for edge in (errands, desk):
        assert sum(map(len, edge.gone.ranges.values())) < 10
        assert sum(last - first for [(first, last), *_] in edge.gone.ranges.values()) > 200
        assert len(edge.lines) < 100
    for program in ("errands", "desk"):
        for replica in world.replicas_of(program):
            execution = replica.execution
            assert len(execution.ended) + len(execution.produced) + len(replica.delivered) < 300
    # They are gone in the next life of an edge, too, and what comes late opens none anew.
    world.machines[desk.context.me.id].restart()
    answered = clients.answered
    assert world.run_until(lambda: clients.answered > answered + 5, within=seconds(10))
    desk = world.edge("desk")
    assert desk is not None
    late = CarryBytes("errands", "errands:0/0", 0, bytes(8), is_end=False)
    world.machines[desk.context.me.id].call(lambda: desk.receive(errands.context.me, late))
    answer = CarriedBytes("errands:0/0", 8, is_end=False)
    world.machines[errands.context.me.id].call(lambda: errands.receive(desk.context.me, answer))
    world.run(seconds(1))
    assert "errands:0/0" not in {*desk.lines, *errands.lines}
    assert not trial.violations()


def test_bytes_that_come_late_are_served_again_where_nothing_is_gone() -> None:
    """The rule left out, so that the check is seen to fire."""
    options = ProgramOptions(program="errands", faults=())
    trial = ProgramTrial(1, options, edge_kind=OpensWhatIsGone)
    world, clients = trial.world, trial.clients
    clients.start()
    assert world.run_until(lambda: clients.answered > 60, within=seconds(60))
    errands, desk = world.edge("errands"), world.edge("desk")
    assert errands is not None
    assert desk is not None
    assert "errands:0/0" not in desk.lines
    late = CarryBytes("errands", "errands:0/0", 0, bytes(8), is_end=False)
    world.machines[desk.context.me.id].call(lambda: desk.receive(errands.context.me, late))
    world.run(seconds(1))
    assert "released once" in {each.check for each in trial.violations()}


def test_a_slow_reader_is_hung_up_on_behind_the_last_byte_whatever_was_freed_meanwhile() -> None:
    """The edge forgot a connection whose end was freed, though its client was still reading."""
    world = ProgramWorld(seed=1, program="pages", replicas=3, guard=Guard.QUORUM)
    closed: list[str] = []
    world.takes_of = lambda conn, data: 0 if conn == "slow" else len(data)
    world.closed_at = closed.append
    world.start()
    assert world.run_until(lambda: world.is_whole("pages"), within=seconds(5))
    edge = world.edge("pages")
    assert edge is not None

    def ask(conn: str) -> None:
        edge.open(conn)
        edge.take(conn, bytes(8))

    world.machines["y"].call(lambda: ask("slow"))
    assert world.run_until(lambda: "slow" in edge.lines, within=seconds(1))
    line = edge.lines["slow"]
    assert world.run_until(lambda: line.released == 4096, within=seconds(5))
    world.machines["y"].call(lambda: edge.took("slow", 4096))
    assert world.run_until(lambda: line.is_closing and line.released == 6000, within=seconds(5))
    for number in range(200):  # others are served, states are kept, inputs are freed
        world.machines["y"].call(lambda conn=f"x{number}": ask(conn))  # type: ignore[misc]
        world.run(milliseconds(20))
    assert edge.first_input > line.end_number > 0
    assert "slow" not in closed
    world.machines["y"].call(lambda: edge.took("slow", 6000 - 4096))
    assert world.run_until(lambda: "slow" in closed, within=seconds(1))
    assert world.run_until(lambda: "slow" not in edge.lines, within=seconds(1))


def test_a_client_that_writes_no_more_is_still_answered() -> None:
    world = ProgramWorld(seed=1, program="pages", replicas=3, guard=Guard.QUORUM)
    told: list[str] = []

    def wrote(conn: str, data: bytes, _rest: bytes) -> None:
        told.append(f"{len(data)} to {conn}")

    world.wrote_to = wrote
    world.closed_at = lambda conn: told.append(f"closed {conn}")
    world.start()
    assert world.run_until(lambda: world.is_whole("pages"), within=seconds(5))
    edge = world.edge("pages")
    assert edge is not None

    def ask() -> None:
        edge.open("x")
        edge.take("x", bytes(8))
        edge.finish("x")

    world.machines["y"].call(ask)
    assert world.run_until(lambda: "closed x" in told, within=seconds(5))
    assert told == ["4096 to x", "1904 to x", "closed x"]


def test_without_a_guard_branches_are_given_up_and_counted() -> None:
    given_up = run(5, guard="none", duration=8)
    assert not given_up.violations
    assert given_up.figures["discarded"] > 0


def test_a_hung_program_is_found_though_its_replica_is_healthy() -> None:
    trial = ProgramTrial(1, ProgramOptions(program="counter", faults=()))
    world, clients = trial.world, trial.clients
    clients.start()
    assert world.run_until(lambda: clients.answered > 5, within=seconds(5))
    [first] = [each for each in world.replicas_of("counter") if each.leading is not None]
    assert first.leading is not None
    first.leading.is_hung = True

    def has_another() -> bool:
        return any(
            each.standing is ReplicaStanding.PRIMARY and each is not first
            for each in world.replicas_of("counter")
        )

    assert world.run_until(has_another, within=seconds(10))
    answered = clients.answered
    assert world.run_until(lambda: clients.answered > answered, within=seconds(5))
    assert not trial.violations()


def test_a_group_without_its_edge_stops_and_goes_on_with_it() -> None:
    world = ProgramWorld(seed=1, program="counter", replicas=3, guard=Guard.QUORUM)
    clients = ProgramClients(world, world.simulation.random)
    world.start()
    clients.start()
    assert world.run_until(lambda: clients.answered > 5, within=seconds(5))
    world.machines["y"].crash()
    answered, end = clients.answered, world.trackers["counter"].end
    world.run(seconds(3))
    assert (clients.answered, world.trackers["counter"].end) == (answered, end)
    world.machines["y"].start()
    assert world.run_until(lambda: clients.answered > answered, within=seconds(10))
    assert not world.trackers["counter"].finish()


def test_a_logged_backup_executes_nothing_until_it_leads() -> None:
    """II-E, as it is built: checkpoints and orders, and the rest is executed at promotion."""
    options = ProgramOptions(program="counter", faults=(), backups="logged")
    trial = ProgramTrial(3, options)
    world, clients = trial.world, trial.clients
    clients.start()
    assert world.run_until(lambda: clients.answered > 60, within=seconds(20))
    [first] = [each for each in world.replicas_of("counter") if each.leading is not None]
    for backup in world.replicas_of("counter"):
        if backup is not first:
            assert _total(backup.execution.program) == 0  # its program has not begun
            assert backup.kept.number > 0  # and states of the primary's are kept
            assert backup.execution.number > backup.kept.number
    world.machines[first.me.id].crash()
    answered = clients.answered
    assert world.run_until(lambda: clients.answered > answered + 5, within=seconds(10))
    [second] = [each for each in world.replicas_of("counter") if each.leading is not None]
    assert _total(second.execution.program) >= max(clients.told)
    assert not trial.violations()


@pytest.mark.parametrize(
    ("guard", "seed"),
    [
        pytest.param("quorum", 1, id="what an earlier life knew is not known to the next"),
        pytest.param("quorum", 6, id="who has led begins to log behind what it has executed"),
        pytest.param("none", 15, id="who was removed again asks again"),
    ],
)
def test_what_was_broken_with_logged_backups(guard: str, seed: int) -> None:
    options = ProgramOptions(
        program="counter", guard=guard, backups="logged", duration=seconds(10), **AS_FOUND
    )
    assert not run_seed(seed, options).violations


@pytest.mark.parametrize(("kind", "follows"), [(Edge, False), (EqualViewsFollow, True)])
def test_no_two_claims_to_one_view_follow_each_other(kind: type[Edge], *, follows: bool) -> None:
    """The broken variant lets the second have it, by its precedence."""
    world = ProgramWorld(seed=3, program="counter", replicas=3, guard=Guard.QUORUM, edge_kind=kind)
    world.start()
    assert world.run_until(lambda: world.is_whole("counter"), within=seconds(5))
    edge = world.edge("counter")
    assert edge is not None
    first = edge.log.last_claim
    other = next(each for each in world.replicas_of("counter") if each.me != first.life)
    world.simulation.network.cut([(id, "y") for id in "abc"])
    world.run(milliseconds(320))  # the edge vouches for nobody now, and hears no proposal
    claim = PrimaryClaim(first.view, 99, other.me)
    log, roster = other.log, other.kept.roster
    question = NewPrimaryView(claim, log.end, log.spans, roster, is_leading=False)
    world.machines["y"].call(lambda: edge.receive(other.me, question))
    world.run(milliseconds(1))
    assert (edge.fence == claim) == follows


def test_a_takeover_changes_no_roster() -> None:
    """Figure 9, line 9, would leave out the old primary and all of lower precedence."""
    world = ProgramWorld(seed=3, program="counter", replicas=3, guard=Guard.QUORUM)
    world.start()
    assert world.run_until(lambda: world.is_whole("counter"), within=seconds(5))
    [first] = [each for each in world.replicas_of("counter") if each.leading is not None]
    before = first.execution.roster
    world.machines[first.me.id].crash()

    def leaders() -> list[ProgramReplica]:
        return [each for each in world.replicas_of("counter") if each.leading is not None]

    assert world.run_until(lambda: bool(leaders()), within=seconds(5))
    [second] = leaders()
    assert second.execution.view.life == second.me
    assert second.execution.roster == before


def test_everybody_restarts_from_what_was_stored() -> None:
    world = ProgramWorld(seed=2, program="counter", replicas=3, guard=Guard.QUORUM)
    clients = ProgramClients(world, world.simulation.random)
    world.start()
    clients.start()
    assert world.run_until(lambda: clients.answered > 20, within=seconds(10))
    for machine in world.machines.values():
        machine.restart()
    answered = clients.answered
    assert world.run_until(lambda: clients.answered > answered + 5, within=seconds(10))
    assert world.run_until(lambda: world.is_whole("counter"), within=seconds(10))
    [total] = {_total(each.execution.program) for each in world.replicas_of("counter")}
    assert total >= max(clients.told)
    assert not clients.violations
    assert not world.trackers["counter"].finish()


def _total(program: object) -> int:
    assert isinstance(program, CounterProgram)
    return program.total


def test_without_an_edge_a_proposer_leads_with_the_longest_orders_of_those_who_answered() -> None:
    """Without a guard: the last leader died, and one of two backups was behind."""
    world = ProgramWorld(seed=4, program="counter", replicas=3, guard=Guard.NONE)
    clients = ProgramClients(world, world.simulation.random)
    world.start()
    clients.start()
    assert world.run_until(lambda: world.is_whole("counter"), within=seconds(10))
    first, behind, ahead = sorted(
        world.replicas_of("counter"),
        key=lambda each: (
            each.leading is None,
            each.execution.roster.rank(each.me.id, each.current.life.id),
        ),
    )
    assert first.leading is not None
    # What the edge reflects no longer reaches the backup that is the first in line.
    network = world.simulation.network
    network.cut([("y", behind.me.id)])
    assert world.run_until(lambda: ahead.log.end > behind.log.end + 5, within=seconds(5))
    world.machines["y"].crash()
    world.machines[first.me.id].crash()
    end = ahead.log.end

    def leads() -> bool:
        return behind.leading is not None or ahead.leading is not None

    assert world.run_until(leads, within=seconds(10))
    leader = behind if behind.leading is not None else ahead
    assert leader is behind
    assert behind.log.end > end
    assert behind.log.claim_at(end) == ahead.log.claim_at(end)


def test_equal_precedences_that_two_branches_gave_yield_by_the_life() -> None:
    """As published neither of two leaders with one precedence gives way to the other."""
    world = ProgramWorld(seed=6, program="counter", replicas=3, guard=Guard.NONE)
    clients = ProgramClients(world, world.simulation.random)
    world.start()
    clients.start()
    assert world.run_until(lambda: world.is_whole("counter"), within=seconds(10))
    view = max(each.current.view for each in world.replicas_of("counter")) + 1
    network = world.simulation.network
    network.cut([(one, other) for one in "abcy" for other in "abcy" if one != other])
    two = [each for each in world.replicas_of("counter") if each.leading is None]
    tied = [PrimaryClaim(view, 9, each.me) for each in two]
    for each, claim in zip(two, tied, strict=True):
        _lead_alone(world, each, claim)
    world.run(milliseconds(100))
    assert [each.leading is not None and each.leading.claim for each in two] == tied
    edge = world.edge("counter")
    assert edge is not None
    world.heal()
    assert world.run_until(lambda: world.is_whole("counter"), within=seconds(10))
    assert edge.fence == max(tied)
    answered = clients.answered
    assert world.run_until(lambda: clients.answered > answered + 5, within=seconds(10))
    assert not world.trackers["counter"].finish()


def _lead_alone(world: ProgramWorld, replica: ProgramReplica, claim: PrimaryClaim) -> None:
    """Have a replica lead by a claim without its edge, as if patience had run out."""

    def lead() -> None:
        replica._promise(claim)
        replica._claim = claim
        replica._lead_without_edge()

    world.machines[replica.me.id].call(lead)


def test_faults_leave_a_group_time_to_serve() -> None:
    """By the old options the same seed answers six requests: most of what it checks is silence."""
    options = ProgramOptions(program="relay", duration=seconds(20))
    rested = run_seed(3, options)
    without = run_seed(3, replace(options, **AS_FOUND))
    assert not rested.violations
    assert without.figures["answered"] < 30
    assert rested.figures["answered"] > 60
    assert sum(rested.faults.values()) > 60
    assert rested.figures["rosters"] > 10
    assert rested.figures["edges lost"] > 1
