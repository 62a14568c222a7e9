"""What `coterie status` shows of a replicated program."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.terminal.paint import Paint, as_one_line
from coterie.kernel.errors import CoterieError
from coterie.service.operate.control import Look, NobodyThere, give_order

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from coterie.service.operate.control import ProcessSeen

INTERVAL_SECONDS = 1.0
_HEAD = ["process", "pid", "app", "role", "orders", "behind", "restarts", "note"]
_UNPROTECTED_BELOW = 2


def show_program(args: argparse.Namespace, folder: Path) -> int:
    """Show the processes of a program; 0 if it is led, and another replica could lead."""
    while True:
        try:
            processes = give_order(folder, Look()).processes
        except NobodyThere:
            processes = []
        except CoterieError as error:
            print(f"coterie: {error}", file=sys.stderr)
            return exits.NOT_DONE
        verdict = judge(processes)
        if args.json:
            _print_json(args.name, verdict, processes)
        else:
            print("\n".join(draw(args.name, verdict, processes)), flush=True)
        if not args.watch:
            return exits.NOT_DONE if verdict else exits.DONE
        time.sleep(INTERVAL_SECONDS)


def judge(processes: list[ProcessSeen]) -> str:
    """Say what is wrong, in words; nothing if the program is led, and another replica could."""
    if not processes:
        return "it is not running: coterie program run goes on with it, or founds it anew"
    by_id = {each.id: each for each in processes}
    if by_id["edge"].state != "running":
        return "its edge is down: nobody is served until it is back"
    replicas = [each for each in processes if each.id != "edge"]
    if not any(each.role == "primary" for each in replicas):
        return "nobody leads at present"
    whole = [each for each in replicas if each.more.get("whole") and not each.more.get("diverged")]
    if len(whole) < _UNPROTECTED_BELOW:
        return "unprotected: no other replica has the state"
    return ""


def draw(name: str, verdict: str, processes: list[ProcessSeen]) -> list[str]:
    """Give the lines that are shown."""
    paint = Paint()
    state = paint(f"does not serve: {verdict}", "red") if verdict else paint("serves", "green")
    rows = [_HEAD, *(_row(each) for each in processes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [f"{paint(name, 'bold')} {state}", "", *(lines if processes else [])]


def _row(each: ProcessSeen) -> list[str]:
    more = each.more
    orders, executed = int(more.get("orders", 0)), int(more.get("executed", 0))
    behind = "" if each.id == "edge" else str(max(0, orders - executed))
    notes = [each.reason] if each.reason else []
    if each.id == "edge" and more:
        ports = ", ".join(map(str, more.get("ports", [])))
        notes.insert(0, f"{more.get('clients', 0)} clients at {ports or 'no port yet'}")
        if more.get("guard") == "none":
            notes.append("no guard: who was cut off may erase what clients have seen")
    elif more and not more.get("whole"):
        notes.insert(0, f"catching up: {100 * executed // max(orders, 1)} %")
    role = each.role if each.state == "running" else each.state
    pids = [str(each.pid or ""), str(more.get("app") or "")]
    note = as_one_line("; ".join(notes))
    return [each.id, *pids, role, str(orders or ""), behind, str(each.restarts), note]


def _print_json(name: str, verdict: str, processes: list[ProcessSeen]) -> None:
    import msgspec  # noqa: PLC0415 -- start-up stays fast

    whole = {"program": name, "serves": not verdict, "advice": verdict, "processes": processes}
    print(msgspec.json.encode(whole).decode(), flush=True)
