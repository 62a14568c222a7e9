"""What `coterie status` shows of the manager's own group."""

from __future__ import annotations

from tests.manager.test_management import policy
from tests.ready.clocks import at, make

from coterie.cli.commands.managed_status import draw_management
from coterie.cli.terminal.paint import Paint
from coterie.manager.management import GroupNote, HostNote, Management, ManagerNotes


def test_hosts_groups_what_is_done_and_why_not() -> None:
    management = make(Management)
    assert draw_management(at(0, management.state), ManagerNotes(), Paint()) == [
        "nobody acts; no policy is in force yet"
    ]
    at(0, lambda: management.want(policy()))
    fence = at(0, lambda: management.hold("one", 10)).state.fence
    at(0, lambda: management.begin(fence, 0, "found", "g", ["h1"], "it is new"))
    at(3, lambda: management.end(fence, 1, "it has begun", stays=True))
    at(4, lambda: management.drain("h2"))
    notes = ManagerNotes(
        hosts={"h1": HostNote(is_reached=True, labels={"zone": "a"}, replicas=("g-1",))},
        groups={
            "g": GroupNote(members=("g-1",), clients_at={"g-1": "h:1"}, doing="add g-2"),
            "k": GroupNote(why_not="no host can take one"),
        },
    )
    text = "\n".join(draw_management(at(5, management.state), notes, Paint()))
    for said in (
        "one acts, under fence 1; policy 1",
        "h1    reached               zone=a",
        "h2    not reached, drained",
        "g      3       1        g-1@h1(h:1)",
        "- g: add g-2",
        "- k: no host can take one",
        "- done: found g-1 on h1 (it is new): it has begun, 3.0 s",
    ):
        assert said in text, text
