"""`coterie call`: call a method of a replicated object."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.deadline import add_deadline
from coterie.cli.errors import UsageError
from coterie.cli.target import add_target, find_target, processes_of
from coterie.cli.terminal.paint import as_one_line

if TYPE_CHECKING:
    import argparse
    import asyncio

    from coterie.cli.parser import Parser, Subparsers
    from coterie.cli.target import KnownGroup
    from coterie.client import MethodReport, Result, UntypedObject

COLOURS = ("red", "green")
LEVELS = ("dirty", "weak", "consistent")
_RED = "it is ordered, and may become another answer, when the sides of the cut meet"
_SEES_RED = "updates are in it that are not ordered yet"
_NO_EFFECT = "the call surely had no effect"
_NOT_TWICE = "it may have been executed, or may be yet, but not twice: ask the object"


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "call",
        help="call a method of a replicated object",
        description="Call a method of a replicated object and print what it gives. Without a "
        "method, list those it has. An argument is JSON, or else text as it stands; one that is "
        "to be text may always be written as it stands.",
    )
    add_target(parser, may_be_address=True)
    parser.add_argument("method", nargs="?", metavar="METHOD", help="which method")
    parser.add_argument("arguments", nargs="*", metavar="ARG", help="its arguments, in order")
    parser.add_argument(
        "--level",
        choices=LEVELS,
        help="how fresh the answer of a query must be (default: consistent)",
    )
    parser.add_argument(
        "--colour",
        choices=COLOURS,
        help="in a group over a partitioned network: take the red answer of an update, on any side "
        "of a cut, instead of waiting for the green one (default: green)",
    )
    add_deadline(parser, 5.0, "how long to try")
    parser.add_argument(
        "--json", action="store_true", help="print the answer with its place in the order, as JSON"
    )
    parser.takes_rest = _take_rest
    return parser


def _take_rest(args: argparse.Namespace, words: list[str]) -> None:
    """Take method and arguments that come after an option."""
    if args.method is None:
        args.method, words = words[0], words[1:]
    args.arguments += words


def run(args: argparse.Namespace) -> int:  # noqa: PLR0911 -- each way to end has its own
    """Call the method."""
    from coterie.client import MethodFailed, NotWelcome, OutcomeUnknown  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError, Refused  # noqa: PLC0415
    from coterie.objects.errors import (  # noqa: PLC0415
        BadArguments,
        CommandTooLarge,
        UnknownMethod,
    )
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415

    is_running = False
    try:
        target = find_target(args)
        if processes_of(target) is None:
            # It would be looked for until the deadline, and `status` knows that it is not there.
            return _end(args, "not done", target.how_to_serve(), exits.NOT_DONE)
        is_running = True
        return run_loop(_call(args, target))
    except KeyboardInterrupt:
        if is_running:  # it was interrupted again while the call was being ended
            return _end(args, "unknown", f"interrupted; {_NOT_TWICE}", exits.INTERRUPTED)
        return _end(args, "not done", f"interrupted; {_NO_EFFECT}", exits.INTERRUPTED)
    except MethodFailed as failure:
        return _end(args, "failed", str(failure), exits.FAILED)
    except OutcomeUnknown as unknown:
        return _end(args, "unknown", str(unknown), exits.UNKNOWN)
    except (BadArguments, UnknownMethod, CommandTooLarge, NotWelcome) as error:
        raise UsageError(str(error)) from None
    except Refused as refusal:
        return _end(args, "not done", str(refusal), exits.NOT_DONE)
    except CoterieError as error:
        raise UsageError(str(error)) from None


def _end(args: argparse.Namespace, outcome: str, sentence: str, status: int) -> int:
    if args.json:
        import json  # noqa: PLC0415

        print(json.dumps({"outcome": outcome, "reason": sentence}))
    # The method's error may say what another caller has put there.
    print(f"coterie: {outcome}: {as_one_line(sentence)}", file=sys.stderr)
    return status


class _Made:
    """The call, once it is made."""

    call: asyncio.Future[Result[object]] | None = None
    is_told = False
    """Whether its answer was printed."""


async def _call(args: argparse.Namespace, target: KnownGroup) -> int:  # noqa: PLR0911 -- as above
    """Call the method; on Ctrl-C end the call, and say what is known of it then."""
    import asyncio  # noqa: PLC0415

    from coterie.client import MethodFailed, NotDone, OutcomeUnknown  # noqa: PLC0415

    made = _Made()
    try:
        await _make_call(args, target, made)
    except asyncio.CancelledError:
        if made.is_told:
            return exits.DONE
        # The client is closed by now, and has given the call the outcome that is known.
        if made.call is None:
            return _end(args, "not done", f"interrupted; {_NO_EFFECT}", exits.INTERRUPTED)
        try:
            _print(await made.call, as_json=args.json)
        except MethodFailed as failure:
            return _end(args, "failed", f"interrupted; {failure}", exits.INTERRUPTED)
        except OutcomeUnknown:
            return _end(args, "unknown", f"interrupted; {_NOT_TWICE}", exits.INTERRUPTED)
        except NotDone:
            return _end(args, "not done", f"interrupted; {_NO_EFFECT}", exits.INTERRUPTED)
        print("coterie: done: the answer came as it was interrupted", file=sys.stderr)
        return exits.INTERRUPTED
    return exits.DONE


async def _make_call(args: argparse.Namespace, target: KnownGroup, made: _Made) -> None:
    """Connect, call, and print the answer."""
    import asyncio  # noqa: PLC0415

    from coterie.client import ClientSettings, connect_untyped  # noqa: PLC0415
    from coterie.client.methods import RemoteQuery  # noqa: PLC0415

    async with connect_untyped(
        list(target.addresses.values()),
        group=target.group,
        secret=target.secret,
        tls=target.tls,
        settings=ClientSettings(deadline=args.deadline),
    ) as remote:
        if args.method is None:
            _list_methods(remote, as_json=args.json)
            return
        described = remote.describe(args.method)
        arguments = understand(described, args.arguments)
        method = remote.method(args.method)
        if isinstance(method, RemoteQuery):
            if args.colour is not None:
                raise UsageError(f"{args.method!r} is a query, and a --colour is for updates")
            method = method.options(level=args.level or "consistent", deadline=args.deadline)
        elif args.level is not None:
            raise UsageError(f"{args.method!r} is an update, and a --level is for queries")
        else:
            method = method.options(deadline=args.deadline, colour=args.colour or "green")
        made.call = asyncio.ensure_future(method.detailed(*arguments))
        # An interrupted command wants to know what the call has come to, so the call goes on.
        _print(await asyncio.shield(made.call), as_json=args.json)
        made.is_told = True


def understand(method: MethodReport, words: list[str]) -> list[object]:
    """Make values of what was typed, by the types of the parameters."""
    parameters = method.parameters
    needed = sum(not each.is_optional for each in parameters)
    if not needed <= len(words) <= len(parameters):
        raise UsageError(f"{len(words)} arguments do not fit: {signature(method)}")
    return [
        _value(word, parameter.schema) for word, parameter in zip(words, parameters, strict=False)
    ]


def _value(word: str, schema: str) -> object:
    import msgspec  # noqa: PLC0415

    from coterie.kernel.decoding import decode_json  # noqa: PLC0415

    try:
        value: object = decode_json(word)
    except msgspec.DecodeError:
        return word
    kind = decode_json(schema).get("type") if schema else None
    return word if kind == "string" and not isinstance(value, str) else value


def signature(method: MethodReport) -> str:
    """Write a method as its author did."""
    parameters = ", ".join(
        f"{each.name}: {each.type}" + (f" = {each.default}" if each.is_optional else "")
        for each in method.parameters
    )
    return f"{method.name}({parameters}) -> {method.result}"


def _list_methods(remote: UntypedObject, *, as_json: bool) -> None:
    import msgspec  # noqa: PLC0415

    report = remote.report
    if as_json:
        print(msgspec.json.encode(report.methods).decode())
        return
    from coterie.cli.terminal.paint import Paint  # noqa: PLC0415

    paint = Paint()
    about = f": {report.documentation.splitlines()[0]}" if report.documentation else ""
    print(f"{paint(as_one_line(report.class_name), 'bold')}{as_one_line(about)}")
    for method in report.methods:
        kind = paint(method.kind.ljust(6), "faint")
        print(f"  {kind} {as_one_line(signature(method))}")
        if method.documentation:
            first = as_one_line(method.documentation.splitlines()[0])
            print(f"           {paint(first, 'faint')}")


def _is_seen() -> bool:
    return sys.stdout.isatty()


def _print(result: Result[object], *, as_json: bool) -> None:
    import msgspec  # noqa: PLC0415

    from coterie.kernel.components import RED  # noqa: PLC0415

    if as_json:
        answer: dict[str, object] = {
            "outcome": "done",
            "value": result.value,
            "position": result.position,
            "viewstamp": str(result.viewstamp),
            "standing": result.standing.name.lower(),
        }
        if result.seen is not None:
            answer["age"] = result.age
        print(msgspec.json.encode(answer).decode())
    elif isinstance(result.value, str):
        # As it is for programs; whoever looks at it does not want its control characters obeyed.
        print("\n".join(map(as_one_line, result.value.split("\n"))) if _is_seen() else result.value)
    elif result.value is not None:
        print(msgspec.json.encode(result.value).decode())
    if result.standing is RED and not as_json:
        why = _RED if result.seen is None else _SEES_RED
        print(f"coterie: red: {why}", file=sys.stderr)
