"""`coterie pipeline state` and `diff`: the object as it was, and what has changed since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from coterie.cli.parser import Parser, Subparsers
    from coterie.pipeline.history.replay import Program

ACTIONS = ("state", "diff")
_NOTHING = object()
_PLACE = "a position (42), a viewstamp (3.a:7) or a time (2026-01-31T12:00:00+00:00)"


def add_parsers(actions: Subparsers) -> None:
    """Describe both actions."""
    state = actions.add_parser(
        "state",
        help="print the state of a group at a place in its history",
        description="Run the history that earlier runs have sealed on the class, up to a place, "
        "and print the state there as JSON.",
    )
    _add_options(state)
    state.add_argument("--at", metavar="PLACE", help=f"{_PLACE}; default: the end")
    diff = actions.add_parser(
        "diff",
        help="print what changed in the state of a group between two places in its history",
        description="Print every part of the state that differs between two places.",
    )
    _add_options(diff)
    diff.add_argument("--from", dest="since", required=True, metavar="PLACE", help=_PLACE)
    diff.add_argument("--to", metavar="PLACE", help="the same; default: the end")


def _add_options(parser: Parser) -> None:
    parser.add_argument("group", metavar="GROUP", help="the name of the group")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the results of `pipeline run`"
    )
    parser.add_argument(
        "--class",
        dest="program",
        required=True,
        metavar="MODULE:CLASS",
        help="which class the group runs (or FILE.py:CLASS)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, program: Program) -> int:
    """Print a state, or what differs between two."""
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415 -- start-up stays fast

    try:
        if args.action == "state":
            _print_state(_state(args, program, args.at), as_json=args.json)
        else:
            old, new = _state(args, program, args.since), _state(args, program, args.to)
            _print_changes(old, new, as_json=args.json)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    return exits.DONE


def _state(args: argparse.Namespace, program: Program, place: str | None) -> dict[str, Any]:
    """Give the state at a place, as a row of `states`."""
    from datetime import datetime  # noqa: PLC0415

    from coterie.kernel.decoding import JsonDecoder  # noqa: PLC0415
    from coterie.pipeline.engines import families_of  # noqa: PLC0415
    from coterie.pipeline.history.gathering import testimony_of  # noqa: PLC0415
    from coterie.pipeline.history.states import (  # noqa: PLC0415
        last_position,
        position_at,
        read_place,
        state_at,
    )
    from coterie.pipeline.lake.lake import Lake  # noqa: PLC0415
    from coterie.pipeline.publish.events import state_row  # noqa: PLC0415

    lake = Lake.open(args.out / "lake")
    if args.group not in lake.groups():
        raise UsageError(
            f"there is no group {args.group!r} in {args.out}: it has {', '.join(lake.groups())}"
        )
    if families_of(lake)[args.group].name != "stack":
        raise UsageError(f"{args.group} is a group of cohorts, whose states are not rebuilt")
    testimony = testimony_of(lake, args.group)
    try:
        wanted = last_position(lake, testimony) if place is None else read_place(place)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if isinstance(wanted, datetime):
        wanted = position_at(lake, testimony, program, wanted)
    row = state_row(state_at(lake, testimony, program, wanted))
    view = row.pop("view")
    life = "" if view["incarnation"] == 1 else f"#{view['incarnation']}"
    return {
        "group_name": args.group,
        "position": row["position"],
        "viewstamp": f"{view['number']}.{view['proposer']}{life}:{row['number']}",
        "executed_at": _time(row["executed_at"]),
        "class_name": row["class_name"],
        "class_version": row["class_version"],
        "digest": row["digest"].hex(),
        "state": JsonDecoder(Any).decode(row["state"].encode()),
    }


def _time(microseconds: int) -> str | None:
    """Give a time as ISO 8601 has it; none if nobody said one."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415

    if not microseconds:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).isoformat()


def _about(row: dict[str, Any]) -> str:
    return (
        f"{row['group_name']} at {row['position']:,} ({row['viewstamp']}, {row['executed_at']}): "
        f"{row['class_name']}, version {row['class_version']}, digest {row['digest']}"
    )


def _print_state(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(row))
        return
    print(_about(row))
    print(json.dumps(row["state"], indent=2, ensure_ascii=False))


def _print_changes(old: dict[str, Any], new: dict[str, Any], *, as_json: bool) -> None:
    changes = list(differences(old["state"], new["state"]))
    if as_json:
        print(json.dumps({"from": old, "to": new, "changes": changes}))
        return
    print(f"- {_about(old)}\n+ {_about(new)}")
    for change in changes:
        before = json.dumps(change["before"]) if "before" in change else "(nothing)"
        after = json.dumps(change["after"]) if "after" in change else "(nothing)"
        print(f"{change['where']}: {before} -> {after}")
    if not changes:
        print("the states are equal")


def differences(old: object, new: object, where: str = "") -> Iterator[dict[str, Any]]:
    """Give what differs between two values of JSON: where, what was there, and what is."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            inner = f"{where}.{key}" if where else key
            yield from differences(old.get(key, _NOTHING), new.get(key, _NOTHING), inner)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before = old[index] if index < len(old) else _NOTHING
            after = new[index] if index < len(new) else _NOTHING
            yield from differences(before, after, f"{where}[{index}]")
    elif old is _NOTHING or new is _NOTHING or old != new:
        change: dict[str, Any] = {"where": where}
        change |= {} if old is _NOTHING else {"before": old}
        change |= {} if new is _NOTHING else {"after": new}
        yield change
