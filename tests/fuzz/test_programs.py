"""Whatever bytes the replicas and the edge of a program are sent, no turn raises."""

import msgspec
import pytest
from tests.fuzz.programs import VARIANTS, fuzz

from coterie.kernel.claims import NO_CLAIM, Input, Order, OrderKind, OrderRun, PrimaryClaim
from coterie.kernel.clock import seconds
from coterie.kernel.errors import BadMessage
from coterie.kernel.records import OrdersKnown
from coterie.kernel.views import Member
from coterie.llft.execution import EARLY_MAX, InputBuffer
from coterie.llft.following import ReplicaStanding
from coterie.llft.memory import EdgeMemory, ReplicaMemory, WrongMemory
from coterie.llft.messages import Reflected
from coterie.llft.orders import OrderLog
from coterie.simulation.engines.llft.trial import ProgramOptions, ProgramTrial

CLAIM = PrimaryClaim(1, 1, Member("a", 1))


EACH = pytest.mark.parametrize(
    "options",
    VARIANTS,
    ids=lambda each: f"{each.program}-{each.guard}-{each.backups}-{each.standby}",
)


@EACH
def test_wrong_frames_of_a_program(options: ProgramOptions) -> None:
    fuzz(options, seed=2, inputs=100)


def test_a_primary_takes_no_orders_that_it_has_not_made() -> None:
    """Its edge had orders of its own claim: what it made next had their numbers in the journal."""
    trial = ProgramTrial(1, ProgramOptions(program="counter"))
    world, simulation = trial.world, trial.world.simulation
    assert simulation.run_until(lambda: world.is_whole("counter"), within=seconds(20))
    replicas = world.replicas_of("counter")
    primary = next(each for each in replicas if each.standing is ReplicaStanding.PRIMARY)
    end, claim = primary.log.end, primary.current
    run = OrderRun(claim, end + 1, [Order(OrderKind.CLOCK, 1)] * 3, primary.log.last_claim)
    edge = Member(primary.edge, 1)
    primary.receive(edge, Reflected(claim, end + 3, end, 0, [run], {}, claim))
    assert OrderKind.CLOCK not in {each.kind for each in orders_behind(primary.log, end)}


def orders_behind(log: OrderLog, number: int) -> list[Order]:
    return [log.order(at) for at in range(number + 1, log.end + 1)]


def test_an_order_with_a_roster_that_is_none_is_never_stored() -> None:
    """It was put on record, and then read at every start."""
    order = Order(OrderKind.ROSTER, data=b"\x93\xff")
    log = OrderLog()
    with pytest.raises(BadMessage, match="a roster that is none"):
        log.extend([OrderRun(CLAIM, 1, [order], NO_CLAIM)])
    assert log.end == 0


def test_inputs_that_are_far_ahead_keep_out_none_that_come_next() -> None:
    """A thousand of them filled the room, and the next one was never taken."""
    buffer = InputBuffer()
    far = [Input(number, "c", 0, b"") for number in range(10**6, 10**6 + 2 * EARLY_MAX)]
    assert not buffer.take(far)
    assert [each.number for each in buffer.take([Input(1, "c", 0, b"x")])] == [1]


def test_numbers_that_leave_no_room_to_count_on_are_refused() -> None:
    claim = msgspec.msgpack.encode(PrimaryClaim(2**63 - 1, 1, Member("a", 1)))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(claim, type=PrimaryClaim)


def test_orders_on_a_disk_that_do_not_follow_each_other_are_a_sentence() -> None:
    """They were an assertion, at every start."""
    order = Order(OrderKind.CLOCK, 1)
    known = OrdersKnown(
        group="counter",
        member=Member("a", 1),
        at=1,
        runs=[OrderRun(CLAIM, 5, [order], NO_CLAIM)],
    )
    with pytest.raises(WrongMemory, match="do not follow each other"):
        ReplicaMemory.recall((), [known])


@pytest.mark.parametrize("kind", [ReplicaMemory, EdgeMemory])
def test_a_snapshot_on_a_disk_that_is_none_is_a_sentence(
    kind: type[ReplicaMemory | EdgeMemory],
) -> None:
    with pytest.raises(WrongMemory, match="cannot be"):
        kind.recall([b"\x93\xff"], ())


@pytest.mark.long
@EACH
def test_many_wrong_frames_of_a_program(options: ProgramOptions) -> None:
    for seed in range(100, 102):
        fuzz(options, seed, inputs=600)
