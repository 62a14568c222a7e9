"""`coterie program`: unmodified Python programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.cli.parser import Parser, Subparsers
    from coterie.program.command_words import ProgramCommand
    from coterie.program.rehearsal import Rehearsal, RehearsalOutcome
    from coterie.service.operate.control import ControlOrder

_EPILOG = """exit status:
  0  the program did the same twice, and asked for nothing that cannot be replicated
  1  it did not, or it did; what and where is said
  2  the command is wrong; the message says what to do
"""


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command."""
    parser = subparsers.add_parser(
        "program",
        help="run an unmodified Python program as replicas, or rehearse it",
        description="Works with Python programs that somebody else wrote, as they are.",
    )
    actions = parser.add_subparsers(title="actions", metavar="<action>", required=True)
    rehearse = actions.add_parser(
        "rehearse",
        help="run a program, have a second process follow it, and say what will not work",
        description="Runs a program here; clients connect to it as always. A second process is"
        " given the same input and the order of everything that came by chance, and must do the"
        " same. End the program as you always do, or with Ctrl-C; then the verdict is printed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_command(rehearse)
    rehearse.set_defaults(action=_rehearse_program)
    running = actions.add_parser(
        "run",
        help="run a program as replicas on this machine",
        description="Runs a program as several replicas behind one edge. Clients connect as always;"
        " when the process that leads dies, another one goes on, and they keep their connections."
        " Ends when the program exits, with its status. Ctrl-C is the program's own; the second"
        " one stops all, and the same command goes on from there.",
    )
    running.add_argument("--name", help="what it is called (default: the script's name)")
    running.add_argument(
        "--replicas", type=int, default=3, metavar="N", help="how many replicas (default: 3)"
    )
    _add_promises(running, copy_every=32)
    _add_command(running)
    running.set_defaults(action=_run_program)
    planning = actions.add_parser(
        "plan",
        help="write the file with which a program is run on several machines",
        description="Prints the file that 'coterie program member' is given on each machine.",
    )
    planning.add_argument("--name", required=True, help="what it is called")
    planning.add_argument("--edge", required=True, metavar="HOST:PORT", help="where the edge is")
    planning.add_argument(
        "--replica",
        action="append",
        required=True,
        metavar="ID=HOST:PORT",
        help="where a replica is; may be given several times",
    )
    planning.add_argument(
        "--dir", type=Path, required=True, help="where journals go, the same on all machines"
    )
    _add_promises(planning, copy_every=4096)
    _add_command(planning)
    planning.set_defaults(action=_plan_program)
    signalling = actions.add_parser("signal", help="send a program a signal, in order")
    signalling.add_argument("name", metavar="NAME")
    signalling.add_argument("signal", metavar="SIGNAL", help="such as HUP, TERM or USR1")
    signalling.set_defaults(action=_signal_program)
    for word, does in (("add", "have a replica join again"), ("remove", "take a replica out")):
        changing = actions.add_parser(word, help=does)
        changing.add_argument("name", metavar="NAME")
        changing.add_argument("replica", metavar="REPLICA", help="such as r2")
        changing.set_defaults(action=_change_replica, is_wanted=word == "add")
    member = actions.add_parser("member", help="be one process of a program (run starts these)")
    member.add_argument("--config", type=Path, required=True, help="the program's file")
    member.add_argument("--id", required=True, help="which process: edge, r1, ...")
    member.add_argument(
        "--found", action="store_true", help="the first start: make its journal's folder"
    )
    member.add_argument("--control", type=int, help=argparse.SUPPRESS)
    member.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    member.set_defaults(action=_be_member)
    return parser


def _add_promises(running: argparse.ArgumentParser, *, copy_every: int) -> None:
    running.add_argument(
        "--copy-every",
        type=int,
        default=copy_every,
        metavar="MIB",
        help="after so many MiB of log each replica makes a copy of the program's process, which is"
        " its state from there on, and the log before it goes from memory; 0 keeps all of it"
        f" (default: {copy_every})",
    )
    running.add_argument(
        "--journal-max",
        type=int,
        default=8192,
        metavar="MIB",
        help="behind a copy, the oldest part of a replica's journal is removed while it is longer;"
        " the edge's journal stays whole (default: 8192)",
    )
    running.add_argument(
        "--guard",
        choices=("quorum", "none"),
        default="quorum",
        help="who must agree before a replica may lead: the edge (quorum, the default), or nobody"
        " (none): then a backup that is cut off alone leads itself, and when the cut heals its"
        " claim may erase what the others have done and clients have seen",
    )
    for word, what in (("cert", "certificate"), ("key", "private key")):
        running.add_argument(
            f"--tls-{word}",
            type=Path,
            metavar="FILE",
            help=f"the {what} (PEM) with which the edge speaks TLS to clients, at every port",
        )
    running.add_argument(
        "--allow-connect",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="where the program may connect to; may be given several times",
    )
    running.add_argument(
        "--sync",
        choices=("none", "turn"),
        default="none",
        help="when journals are synced: with 'turn' the group survives the loss of a machine's "
        "memory, otherwise that of its processes (default: none)",
    )


def _add_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- python app.py ...",
        help="the program, as you would start it",
    )


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    action: Callable[[argparse.Namespace], int] = args.action
    return action(args)


def _command(args: argparse.Namespace) -> ProgramCommand:
    from coterie.program.command_words import (  # noqa: PLC0415 -- start-up stays fast
        BadCommand,
        refuse_interpreter,
        take_apart,
    )

    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    try:
        command = take_apart(words)
        refuse_interpreter(command.interpreter)
    except BadCommand as error:
        raise UsageError(str(error)) from None
    return command


def _rehearse_program(args: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 -- start-up stays fast

    from coterie.program.rehearsal import Rehearsal  # noqa: PLC0415

    rehearsal = Rehearsal(_command(args), say=_say)
    outcome = asyncio.run(_rehearse(rehearsal))
    _report(outcome)
    return exits.DONE if outcome.is_well else exits.NOT_DONE


def _run_program(args: argparse.Namespace) -> int:
    from coterie.cli.commands.program_session import run_program  # noqa: PLC0415

    return run_program(args, _command(args))


def _plan_program(args: argparse.Namespace) -> int:
    from coterie.cli.commands.program_session import plan_program  # noqa: PLC0415

    return plan_program(args, _command(args))


def _be_member(args: argparse.Namespace) -> int:
    from coterie.cli.commands.program_session import run_member  # noqa: PLC0415

    return run_member(args)


def _signal_program(args: argparse.Namespace) -> int:
    import signal  # noqa: PLC0415

    from coterie.service.operate.control import SignalProgram  # noqa: PLC0415

    word = args.signal.upper().removeprefix("SIG")
    try:
        number = int(word) if word.isdigit() else signal.Signals["SIG" + word]
    except KeyError:
        raise UsageError(f"there is no signal {args.signal!r}; say HUP, TERM, USR1 ...") from None
    return _order(args.name, SignalProgram(int(number)))


def _change_replica(args: argparse.Namespace) -> int:
    from coterie.service.operate.control import ChangeReplica  # noqa: PLC0415

    return _order(args.name, ChangeReplica(args.replica, args.is_wanted))


def _order(name: str, order: ControlOrder) -> int:
    from coterie.agents.deployment import program_folder  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.service.operate.control import NobodyThere, give_order  # noqa: PLC0415

    folder = program_folder(name)
    if folder is None:
        raise UsageError(f"no program {name!r} was run on this machine")
    try:
        answer = give_order(folder, order)
    except NobodyThere:
        answer = None
    except CoterieError as error:
        raise UsageError(str(error)) from None
    if answer is None or not answer.is_done:
        why = f"the program {name!r} is not running" if answer is None else answer.text
        print(f"coterie: {why}", file=sys.stderr)
        return exits.NOT_DONE
    return exits.DONE


def _say(sentence: str) -> None:
    print(f"rehearsal: {sentence}", file=sys.stderr, flush=True)


async def _rehearse(rehearsal: Rehearsal) -> RehearsalOutcome:
    import asyncio  # noqa: PLC0415 -- start-up stays fast
    import signal  # noqa: PLC0415

    asked: set[int] = set()

    def pass_on(number: int) -> None:
        if number in asked:
            _say("asked twice: the program is ended as by a crash")
            rehearsal.kill()
            return
        asked.add(number)
        rehearsal.signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, pass_on, number)
    return await rehearsal.run()


def _report(outcome: RehearsalOutcome) -> None:
    for each in outcome.refused:
        _say(f"REFUSED: {each}")
    if outcome.diverged:
        _say(f"DIVERGED: {outcome.diverged.rstrip()}")
    if outcome.broken:
        _say(f"BROKEN: {outcome.broken}")
    ended = "was ended" if outcome.status is None else f"exited with status {outcome.status}"
    if outcome.is_well:
        _say(
            f"the same twice: {outcome.followed} entries, {outcome.clients} clients,"
            f" {outcome.output} bytes of output; the program {ended}"
        )
    else:
        _say(f"this program cannot be replicated as it is; it {ended}")
