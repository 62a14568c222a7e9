"""What `coterie program run` does between its start and its end, and what finds it again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from coterie.agents.deployment import (
    EDGE_ID,
    FILE,
    EdgeCertificate,
    MemberPlace,
    ProgramDeployment,
    encode_deployment,
    read_deployment,
    write_deployment,
)
from coterie.agents.living import found_member, found_program
from coterie.agents.process import MemberProcess
from coterie.agents.supervising import ProgramSupervisor
from coterie.cli import exits
from coterie.cli.errors import UsageError
from coterie.journal.disk import make_private_folder
from coterie.journal.format import Sync
from coterie.journal.writer import StorageFailed
from coterie.kernel.errors import CoterieError
from coterie.llft.settings import Guard
from coterie.program.command_words import environment
from coterie.runtime.address import parse_address
from coterie.runtime.local_groups import state_folder
from coterie.runtime.loop import run as run_loop
from coterie.service.folder import FolderTaken
from coterie.service.operate.founding import free_port
from coterie.service.state_folder import check_name

if TYPE_CHECKING:
    import argparse

    from coterie.program.command_words import ProgramCommand

REPLICAS_MAX = 9
ENDED = "ended"
"""A file that says that the program has exited: the next run founds it anew."""
UNGUARDED = (
    "without a guard a backup that is cut off alone leads itself, and when the cut heals its claim"
    " may erase what the others have done and clients have seen"
)


def run_program(args: argparse.Namespace, command: ProgramCommand) -> int:
    """Run a program as replicas; give the status that it exits with."""
    try:
        folder = _folder(args, command)
        deployment = _deployment(folder, args, command)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    try:
        return run_loop(_supervise(folder, deployment))
    except FolderTaken as error:
        print(f"coterie: {error}", file=sys.stderr)
        return exits.TAKEN


def plan_program(args: argparse.Namespace, command: ProgramCommand) -> int:
    """Print the file that all machines of a program are given."""
    try:
        places = {}
        for each in [f"{EDGE_ID}={args.edge}", *args.replica]:
            id, sign, where = each.partition("=")
            if not sign or id in places:
                raise UsageError(f"--replica says ID=HOST:PORT, each another: not {each!r}")
            places[id] = MemberPlace(str(parse_address(where)), str(args.dir / id))
        check_name(args.name)
        deployment = _found(args, command, args.name, time.time_ns(), places)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    _warn_of_one_machine(deployment)
    sys.stdout.write(encode_deployment(deployment).decode() + "\n")
    return exits.DONE


def _warn_of_one_machine(deployment: ProgramDeployment) -> None:
    """With the guard a program stands still without its edge: say whose machine takes it along."""
    edge = parse_address(deployment.edge.listen).host
    beside = [
        id for id, place in deployment.replicas.items() if parse_address(place.listen).host == edge
    ]
    if beside:
        print(
            f"coterie: warning: the edge and {', '.join(beside)} are on one machine, {edge}: if "
            "that is lost, the program stops until it is back. Give the edge a machine of its own",
            file=sys.stderr,
        )


def run_member(args: argparse.Namespace) -> int:
    """Be one process of a replicated program."""
    try:
        deployment = read_deployment(args.config)
        deployment.place(args.id)
        if args.found:
            found_member(deployment, args.id)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    try:
        return run_loop(_member(deployment, args).run())
    except StorageFailed as error:
        print(f"coterie: {error}", file=sys.stderr)
        return exits.STORAGE
    except FolderTaken as error:
        print(f"coterie: {error}", file=sys.stderr)
        return exits.TAKEN


def _member(deployment: ProgramDeployment, args: argparse.Namespace) -> MemberProcess:
    return MemberProcess(deployment, args.id, args.control, is_first=not args.again)


def _folder(args: argparse.Namespace, command: ProgramCommand) -> Path:
    words = command.words
    name = args.name or Path(words[1] if words[0] == "-m" else words[0]).stem
    if words[0] == "-c" and not args.name:
        raise UsageError("say how the program is to be called: --name NAME")
    check_name(name)
    folder = state_folder() / name
    if folder.exists() and any(folder.iterdir()) and not (folder / FILE).exists():
        raise UsageError(f"{name} is a group of something else: choose another --name")
    make_private_folder(folder)
    return folder


def _deployment(
    folder: Path, args: argparse.Namespace, command: ProgramCommand
) -> ProgramDeployment:
    """Give the deployment to go on with, or found one."""
    file, ended = folder / FILE, folder / ENDED
    if file.exists() and not ended.exists():
        known = read_deployment(file)
        if known.command != command:
            raise UsageError(
                f"{known.name} was stopped and has not exited; it goes on with the same command:"
                f" {' '.join(known.command.words)}. For another program choose another --name"
            )
        return known
    if min(args.copy_every, args.journal_max) < 0:
        raise UsageError("--copy-every and --journal-max are numbers of MiB, or 0")
    if not 1 <= args.replicas <= REPLICAS_MAX:
        raise UsageError(f"--replicas is from 1 to {REPLICAS_MAX}")
    founded = time.time_ns()
    runs = folder / "runs" / str(founded)
    runs.mkdir(parents=True)
    ids = [EDGE_ID, *(f"r{number}" for number in range(1, args.replicas + 1))]
    ports = _free_ports(len(ids))
    places = {
        id: MemberPlace(f"127.0.0.1:{port}", str(runs / id))
        for id, port in zip(ids, ports, strict=True)
    }
    deployment = _found(args, command, folder.name, founded, places)
    found_program(deployment)
    write_deployment(file, deployment)
    ended.unlink(missing_ok=True)
    return deployment


def _found(
    args: argparse.Namespace,
    command: ProgramCommand,
    name: str,
    founded: int,
    places: dict[str, MemberPlace],
) -> ProgramDeployment:
    others = dict(places)
    return ProgramDeployment(
        name=name,
        interpreter=command.interpreter,
        options=command.options,
        words=command.words,
        folder=str(Path.cwd()),
        environment=environment(),
        founded=founded,
        edge=others.pop(EDGE_ID),
        replicas=others,
        guard=Guard(args.guard),
        secret=token_hex(32),
        sync=Sync(args.sync),
        copy_bytes=args.copy_every << 20,
        journal_bytes_max=args.journal_max << 20,
        tls=_tls(args),
        allow_connect=[str(parse_address(each)) for each in args.allow_connect],
    )


def _tls(args: argparse.Namespace) -> EdgeCertificate | None:
    if not (args.tls_cert or args.tls_key):
        return None
    if not (args.tls_cert and args.tls_key):
        raise UsageError("TLS takes two files: --tls-cert FILE --tls-key FILE")
    files = EdgeCertificate(str(args.tls_cert.absolute()), str(args.tls_key.absolute()))
    if args.action.__name__ == "_run_program":
        files.context()  # of a plan, the edge's machine has the files
    return files


def _free_ports(count: int) -> list[int]:
    """Choose ports that nobody uses, nor is given while their processes are down."""
    with ExitStack() as held:
        return [free_port(held) for _ in range(count)]


async def _supervise(folder: Path, deployment: ProgramDeployment) -> int:
    supervisor = ProgramSupervisor(folder, deployment, _say)
    asked: set[int] = set()

    def pass_on(number: int) -> None:
        if number in asked:
            _say("stopped", {"reason": "asked twice; it goes on from here when it is run again"})
            supervisor.stop()
            return
        asked.add(number)
        supervisor.signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, pass_on, number)
    guard = "" if deployment.guard is Guard.QUORUM else f"; {UNGUARDED}"
    _say(
        "runs",
        {
            "replicas": len(deployment.replicas),
            "pid": os.getpid(),
            "note": f"the edge is one process: its death breaks connections{guard}",
        },
    )
    status = await supervisor.run()
    if supervisor.status is not None:
        (folder / ENDED).write_text(f"{status}\n", encoding="utf-8")
    return status


def _say(name: str, fields: dict[str, object]) -> None:
    words = " ".join(f"{key}={value}" for key, value in fields.items())
    print(f"coterie: {name} {words}".rstrip(), file=sys.stderr, flush=True)
