"""`coterie status`: a group at a glance."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.deadline import add_deadline
from coterie.cli.errors import UsageError
from coterie.cli.target import add_target, find_targets, processes_of
from coterie.cli.terminal.paint import as_one_line

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Parser, Subparsers
    from coterie.cli.target import KnownGroup
    from coterie.cli.terminal.paint import Paint
    from coterie.manager.management import ManagementState, ManagerNotes
    from coterie.service.operate.overview import Overview, ReplicaSeen

INTERVAL_SECONDS = 1.0


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "status",
        help="show a group: members, views, positions, and what to do",
        description="Show who is where in a group, how far each replica is, and what to do if "
        "something is wrong. The exit status is 0 if the group serves, else 1.",
    )
    add_target(parser, may_be_address=True)
    parser.add_argument("--watch", action="store_true", help="show it again every second")
    add_deadline(parser, 1.0, "how long a replica may take to answer")
    parser.add_argument("--json", action="store_true", help="print it as JSON, one line a time")
    return parser


def run(args: argparse.Namespace) -> int:
    """Show the group."""
    from coterie.agents.deployment import program_folder  # noqa: PLC0415 -- start-up stays fast
    from coterie.cli.commands.program_status import show_program  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415

    try:
        program = program_folder(args.name) if args.config is None and not args.address else None
        if program is not None:
            return show_program(args, program)
        targets = find_targets(args)
        while True:
            seen = [(see(target, deadline=args.deadline), target) for target in targets]
            _show(seen, args)
            if not args.watch:
                serves = all(overview.serves for overview, _ in seen)
                return exits.DONE if serves else exits.NOT_DONE
            time.sleep(INTERVAL_SECONDS)
    except CoterieError as error:
        raise UsageError(str(error)) from None


def see(target: KnownGroup, *, deadline: float) -> Overview:
    """Look at a group, its supervisor included if it has one."""
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415
    from coterie.service.operate.overview import look  # noqa: PLC0415

    # If it is not being served its replicas do not answer either.
    processes = processes_of(target) or []

    def see_at(addresses: dict[str, str]) -> Overview:
        return run_loop(
            look(
                group=target.group,
                addresses=addresses,
                processes=processes,
                deadline=deadline,
                secret=target.secret,
                tls=target.tls,
            )
        )

    overview = see_at(target.addresses)
    named = {peer.id: peer.address for peer in overview.named if peer.address}
    if target.config is None and named:
        return see_at(named)  # one address was enough to learn the others
    strangers = {id: address for id, address in named.items() if id not in target.addresses}
    if strangers:
        overview.replicas.extend(see_at(strangers).replicas)
    return overview.of_members()


def _show(seen: list[tuple[Overview, KnownGroup]], args: argparse.Namespace) -> None:
    if args.json:
        for overview, target in seen:
            print(_json(overview, target, _management(overview, target, args)), flush=True)
        return
    from coterie.cli.terminal.paint import Paint  # noqa: PLC0415

    drawn = [draw(overview, target, Paint()) for overview, target in seen]
    for (overview, target), part in zip(seen, drawn, strict=True):
        managed = _management(overview, target, args)
        if managed is not None:
            from coterie.cli.commands.managed_status import draw_management  # noqa: PLC0415

            part += ["", *draw_management(*managed, Paint())]
    lines = [line for part in drawn for line in ["", *part]][1:]
    if args.watch and sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[J")  # home, and clear what was there
    elif args.watch:
        lines.insert(0, time.strftime("%H:%M:%S"))
    print("\n".join(lines), flush=True)


def _management(
    overview: Overview, target: KnownGroup, args: argparse.Namespace
) -> tuple[ManagementState, ManagerNotes] | None:
    """Read what the availability manager says, if the group is its own."""
    from coterie.cli.commands.managed_status import (  # noqa: PLC0415 -- start-up stays fast
        CLASS_NAME,
        read_management,
    )

    report = next((each.report for each in overview.up), None)
    if report is None or report.class_name != CLASS_NAME or not overview.serves:
        return None
    return read_management(target, deadline=args.deadline)


def draw(overview: Overview, target: KnownGroup, paint: Paint) -> list[str]:
    """Draw the group as a table, with what to do below it."""
    if overview.serves:
        state = paint("serves", "green")
    elif overview.takes_red:
        state = paint("takes red updates only", "yellow")
    else:
        state = paint("does not serve", "red")
    report = next((each.report for each in overview.up), None)
    what = f" ({as_one_line(report.class_name)})" if report is not None else ""
    up = f"{len(overview.up)} of {len(overview.replicas)} replicas are up"
    lines = [f"{paint(overview.group, 'bold')}{what} {state}: {up}", ""]
    more = _more(overview)
    last = ["position", "lag", *more]
    rows = [["replica", "pid", "clients at", "life", "role", "view", "members", *last]]
    colours = ["faint"]
    for replica in overview.replicas:
        row, colour = _row(overview, replica, more)
        rows.append([as_one_line(cell) for cell in row])
        colours.append(colour)
    if not any(replica.process for replica in overview.replicas):
        rows = [[row[0], *row[2:]] for row in rows]  # nobody here knows their processes
    first_number = len(rows[0]) - len(last)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row, colour in zip(rows, colours, strict=True):
        cells = [
            cell.rjust(width) if column >= first_number else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(paint("  ".join(cells).rstrip(), colour))
    advice = [
        f"{each.id} is a zombie: {each.report.trouble or 'it has lost its memory'}"
        for each in overview.up
        if each.report is not None and each.report.is_zombie
    ]
    for replica in overview.up:
        assert replica.report is not None
        advice += [f"{replica.id}: {fault}" for fault in replica.report.faults[-_FAULTS_SHOWN:]]
        if replica.report.trouble and not replica.report.is_zombie:
            advice.append(f"{replica.id}: {replica.report.trouble}")
    advice += _advice(overview, target)
    # What replicas tell has parts that their callers have chosen.
    told = (f"- {as_one_line(each)}" for each in advice)
    return [*lines, *([""] if advice else []), *told]


_FAULTS_SHOWN = 3


def _advice(overview: Overview, target: KnownGroup) -> list[str]:
    if target.folder is not None and not any(each.process for each in overview.replicas):
        return [target.how_to_serve()]
    return overview.advice(target.again())


def _more(overview: Overview) -> list[str]:
    """Name what the group's engine has to say besides, in the order in which it says it."""
    names = (name for each in overview.up if each.report for name in each.report.details)
    return list(dict.fromkeys(names))


def _row(overview: Overview, replica: ReplicaSeen, more: list[str]) -> tuple[list[str], str]:
    report, process = replica.report, replica.process
    pid = str(process.pid) if process is not None and process.pid else ""
    if report is None:
        state = "down" if process is None else process.state
        state = "silent" if state == "running" else state
        empty = [""] * (4 + len(more))
        return [replica.id, pid, replica.address, "", state, *empty], "red"
    role = f"zombie, {report.role}" if report.is_zombie else report.role
    members = " ".join(member.partition("#")[0] for member in report.members)
    row = [
        replica.id,
        pid,
        replica.address,
        str(report.incarnation),
        role,
        str(report.view),
        members,
        str(report.position),
        str(overview.lag(replica)),
        *(str(report.details.get(name, "")) for name in more),
    ]
    return row, "green" if replica.is_in_service else "yellow"


def _json(
    overview: Overview,
    target: KnownGroup,
    managed: tuple[ManagementState, ManagerNotes] | None = None,
) -> str:
    import msgspec  # noqa: PLC0415

    replicas = []
    for replica in overview.replicas:
        report = replica.report
        seen: dict[str, object] = {"id": replica.id, "address": replica.address}
        if replica.process is not None:
            seen["process"] = replica.process
        if report is None:
            seen |= {"is_up": False, "reason": replica.silence}
        else:
            seen |= {
                "is_up": True,
                "incarnation": report.incarnation,
                "role": report.role,
                "view": str(report.view),
                "members": report.members,
                "position": report.position,
                "settled": report.settled,
                "lag": overview.lag(replica),
                "is_zombie": report.is_zombie,
                "trouble": report.trouble,
                "faults": report.faults,
                "engine": report.engine,
                "primary": report.primary,
                **report.details,
            }
        replicas.append(seen)
    whole: dict[str, object] = {
        "group": overview.group,
        "serves": overview.serves,
        "has_lost_memory": overview.has_lost_memory,
        "replicas": replicas,
        "advice": _advice(overview, target),
    }
    if managed is not None:
        whole["managed"] = {"state": managed[0], "notes": managed[1]}
    return msgspec.json.encode(whole).decode()
