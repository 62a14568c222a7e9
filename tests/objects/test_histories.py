"""Random histories against a model that knows nothing of copies, windows and undoing.

The model runs the entries that are authoritative in the end, one after the other, on a deep copy
it throws away whenever an update raises. A host that was given the same entries in any number of
deliveries, with settling, roll-backs, other entries in between, and states taken over half-way,
must have the same object and must have answered the same.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.objects import classes
from tests.objects.fake_engine import FakeGroup

from coterie.objects import Done, Failed, HostSettings, Level, define
from coterie.objects.classes.encodable import encode_orderly
from coterie.objects.execution.commands import Call, decode_command

if TYPE_CHECKING:
    from coterie.kernel.engine import Run
    from coterie.objects import Definition

CLUMSY = define(classes.Clumsy)
BANK = define(classes.Bank)
SHALLOW = define(classes.Shallow)


@dataclass
class Model:
    """Executes a history the obvious way."""

    definition: Definition
    object: Any
    seen: dict[tuple[int, int], tuple[str, object]] = field(default_factory=dict)

    def execute(self, runs: list[Run]) -> None:
        for run in runs:
            for payload in run.payloads:
                command = decode_command(payload)
                if isinstance(command, Call):
                    self.call(command)

    def call(self, command: Call) -> None:
        key = (command.session, command.request)
        if key in self.seen:
            return
        method = self.definition.method(command.method)
        before = copy.deepcopy(self.object)
        try:
            result = method.function(self.object, *method.decode(command.arguments))
            self.seen[key] = ("done", encode_orderly(result))
        except Exception as error:  # noqa: BLE001
            self.object = before
            self.seen[key] = ("failed", type(error).__name__)


clumsy_calls = st.tuples(
    st.just("push"), st.tuples(st.sampled_from("xyz"), st.integers(-1, 3))
) | st.tuples(st.just("answer_something_odd"), st.just(()))
pushes = st.tuples(st.just("push"), st.tuples(st.sampled_from("xyz"), st.integers(-1, 3)))
money = st.integers(0, 60).map(classes.Money)
bank_calls = st.tuples(
    st.just("open"), st.tuples(st.integers(1, 3), st.sampled_from(["Ada", "Bob"]))
) | st.tuples(st.just("move"), st.tuples(st.integers(1, 4), st.integers(1, 4), money))


def steps(calls: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(
        st.tuples(
            st.just("call"), st.sampled_from("abc"), st.integers(0, 1), st.integers(1, 12), calls
        )
        | st.tuples(st.sampled_from(["turn", "turn and settle"]))
        | st.tuples(st.sampled_from(["settle", "roll back"]), st.integers(0, 8))
        | st.tuples(st.just("replace"), st.sampled_from("abc"))
        | st.tuples(st.just("look")),
        max_size=40,
    )


def run(  # noqa: C901 -- a script has these verbs
    definition: Definition, script: list[Any], *, optimistic: bool
) -> None:
    host_settings = HostSettings(digest_interval=3, follow_entries=4, undo_log_bytes=300)
    group = FakeGroup(definition, optimistic=optimistic, settings=host_settings)
    sessions = [group.open("a"), group.open("b")]
    lives = dict.fromkeys("abc", 1)
    # A request number always means the same call, as with a real client.
    calls: dict[tuple[int, int], Any] = {}
    for what, *rest in script:
        if what == "call":
            id, who, request, call = rest
            method, args = calls.setdefault((who, request), call)
            group.ask(id, sessions[who], request, method, *args)
        elif what == "turn":
            group.turn(settle=False)
        elif what == "turn and settle":
            group.turn()
        elif what == "settle":
            group.settle(min(group.position, group.settled + rest[0]))
        elif what == "roll back" and optimistic:
            group.roll_back(max(group.settled, group.position - rest[0]))
        elif what == "replace":
            id = rest[0]
            lives[id] += 1
            donor = "abc"["abc".index(id) - 1]
            group.replace(id, donor, incarnation=lives[id])
        elif what == "look":
            compare(group, Level.WEAK)
    compare(group, Level.DIRTY)
    group.turn()
    group.settle(group.position)
    compare(group, Level.WEAK)
    assert group.digests_agree()
    for replica in group.replicas.values():
        assert not replica.host.faults
        shared = replica.digests.keys() & group["a"].digests.keys()
        if not optimistic:
            assert {at: replica.digests[at] for at in shared} == {
                at: group["a"].digests[at] for at in shared
            }


def compare(group: FakeGroup, level: Level) -> None:
    """Hold all replicas against the model."""
    end = group.settled if level is Level.WEAK else group.position
    model = Model(group.definition, group.definition.make())
    model.execute([run.up_to(end) for run in group.history if run.position <= end])
    for replica in group.replicas.values():
        host = replica.host
        machine = host.copies.follow() if level is Level.WEAK else host.copies.machine
        assert machine.position == end
        assert vars(machine.object) == vars(model.object)
        kept = {
            (id, number): outcome
            for id, session in machine.sessions.table.items()
            for number, outcome in session.outcomes.items()
        }
        assert kept.keys() == model.seen.keys()
        for key, outcome in kept.items():
            how, value = model.seen[key]
            if isinstance(outcome, Done):
                assert (how, value) == ("done", outcome.result)
            else:
                assert isinstance(outcome, Failed)
                assert (how, value) == ("failed", outcome.error)


@settings(max_examples=150)
@given(steps(clumsy_calls), st.booleans())
def test_clumsy_updates(script: list[Any], optimistic: bool) -> None:  # noqa: FBT001
    run(CLUMSY, script, optimistic=optimistic)


@settings(max_examples=150)
@given(steps(bank_calls), st.booleans())
def test_money_moves(script: list[Any], optimistic: bool) -> None:  # noqa: FBT001
    run(BANK, script, optimistic=optimistic)


@settings(max_examples=150)
@given(steps(pushes), st.booleans())
def test_containers_of_what_cannot_change(script: list[Any], optimistic: bool) -> None:  # noqa: FBT001
    assert SHALLOW.copies_cheaply
    assert not CLUMSY.copies_cheaply
    run(SHALLOW, script, optimistic=optimistic)
