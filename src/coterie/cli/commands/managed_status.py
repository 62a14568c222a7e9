"""What `coterie status` shows besides, where the group is that of the availability manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.cli.terminal.paint import as_one_line

if TYPE_CHECKING:
    from coterie.cli.target import KnownGroup
    from coterie.cli.terminal.paint import Paint
    from coterie.manager.management import ManagementState, ManagerNotes

CLASS_NAME = "Management"
DONE_SHOWN = 5
_SECOND = 1_000_000


def read_management(
    target: KnownGroup, *, deadline: float
) -> tuple[ManagementState, ManagerNotes] | None:
    """Ask the management object for everything; None if it does not answer."""
    from coterie.client import ClientSettings, connect  # noqa: PLC0415 -- start-up stays fast
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.manager.management import Management  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415

    async def ask() -> tuple[ManagementState, ManagerNotes]:
        connecting: Any = connect(
            Management,
            list(target.addresses.values()),
            group=target.group,
            secret=target.secret,
            tls=target.tls,
            settings=ClientSettings(deadline=deadline),
        )
        async with connecting as management:
            return await management.state(), await management.noted()

    try:
        return run_loop(ask())
    except CoterieError:
        return None


def draw_management(state: ManagementState, notes: ManagerNotes, paint: Paint) -> list[str]:
    """Draw hosts, groups, what is wanted, what is done, and why no more is."""
    acts = f"{state.holder} acts, under fence {state.fence}" if state.holder else "nobody acts"
    if state.policy is None:
        return [f"{acts}; no policy is in force yet"]
    lines = [f"{acts}; policy {state.policy.number}", ""]
    rows = [["host", "state", "labels", "load", "replicas"]]
    for host in state.policy.hosts:
        note = notes.hosts.get(host)
        labels = "" if note is None else " ".join(f"{k}={v}" for k, v in note.labels.items())
        if note is None or not note.is_reached:
            seen = ["not reached", labels, "", ""]
        else:
            seen = ["reached", labels, f"{note.load:g}", " ".join(note.replicas)]
        if host in state.drained:
            seen[0] = f"{seen[0]}, drained"
        rows.append([host, *seen])
    lines += _table(rows)
    lines += ["", *_table(_group_rows(state, notes))]
    for group in state.policy.groups:
        told = notes.groups.get(group)
        if told is not None and told.doing:
            lines.append(f"- {group}: {as_one_line(told.doing)}")
        if told is not None and told.why_not:
            lines.append(f"- {group}: {paint(as_one_line(told.why_not), 'yellow')}")
    for action in state.done[-DONE_SHOWN:]:
        seconds = (action.ended - action.begun) / _SECOND
        lines.append(
            as_one_line(
                f"- done: {action.kind} {action.id} on {action.host} ({action.why}): "
                f"{action.outcome}, {seconds:.1f} s"
            )
        )
    return lines


def _group_rows(state: ManagementState, notes: ManagerNotes) -> list[list[str]]:
    assert state.policy is not None
    rows = [["group", "wanted", "members", "where"]]
    for group, wanted in state.policy.groups.items():
        told = notes.groups.get(group)
        placed = state.placed(group)
        members = () if told is None else told.members
        where = " ".join(
            f"{id}@{placed.get(id, '?')}"
            + (f"({told.clients_at[id]})" if told is not None and id in told.clients_at else "")
            for id in members
        )
        rows.append([group, str(wanted.replicas), str(len(members)), where])
    return rows


def _table(rows: list[list[str]]) -> list[str]:
    rows = [[as_one_line(cell) for cell in row] for row in rows]  # labels are of others' choosing
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
