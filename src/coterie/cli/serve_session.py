"""What `coterie serve` does between its start and its end."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.cli import exits
from coterie.cli.paint import Paint
from coterie.cli.serve import REPLICAS
from coterie.journal.format import Sync
from coterie.kernel.engine import Role
from coterie.kernel.errors import CoterieError
from coterie.service.classes import load_class
from coterie.service.config import DEFAULT_STACK, encode_config, parse_config
from coterie.service.control import Look, NobodyThere, give_order
from coterie.service.folder import lock_folder
from coterie.service.founding import found, make_config
from coterie.service.places import CONFIG, LOG, place_group, read_config, write_config
from coterie.service.supervisor import Supervisor

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from coterie.objects import Definition
    from coterie.service.config import ClusterConfig

LOG_BYTES_MAX = 1 << 20
"""There are two files of a log at most, of about this size each."""
READY_SECONDS = 30.0
"""How long a detached group may take until it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A group that can be started: founded, and its class found."""

    name: str
    folder: Path
    config: ClusterConfig
    definition: Definition
    is_new: bool


def prepare(args: argparse.Namespace) -> Served:
    """Find the group, or found it; raises `CoterieError` with what is wrong."""
    name = _name(args)
    definition = None if args.cls is None else load_class(args.cls)
    folder = place_group(name, args.dir)
    with lock_folder(folder, f"the group {name!r} is being served already: coterie stop {name}"):
        is_new = not (folder / CONFIG).exists()
        if is_new:
            if definition is None:
                raise CoterieError(
                    f"there is no group {name!r} yet, so say what it is: coterie serve MODULE:CLASS"
                )
            config = make_config(
                folder,
                name,
                class_=_portable(args.cls),
                replicas=REPLICAS if args.replicas is None else args.replicas,
                stack=args.stack or DEFAULT_STACK,
                sync=Sync(args.sync or "none"),
            )
            found(folder, config)
        else:
            config = _go_on(folder, args)
    if definition is None:
        definition = load_class(config.groups[config.cluster].class_)
    return Served(name=name, folder=folder, config=config, definition=definition, is_new=is_new)


def _name(args: argparse.Namespace) -> str:
    if args.name is not None:
        return str(args.name)
    if args.cls is None:
        raise CoterieError("say what to serve: MODULE:CLASS, or --name of a group that was served")
    return str(args.cls).rpartition(":")[2].lower()


def _portable(cls: str) -> str:
    """Give the place of a class so that it is found from anywhere, as far as it is a file."""
    module, _, name = cls.rpartition(":")
    return f"{Path(module).absolute()}:{name}" if module.endswith(".py") else cls


def _go_on(folder: Path, args: argparse.Namespace) -> ClusterConfig:
    """Give the configuration of a group that was founded before, with what may change changed."""
    config = read_config(folder)
    group = config.groups[config.cluster]
    if args.replicas not in {None, len(config.replicas)}:
        raise CoterieError(
            f"the group {config.cluster!r} was founded with {len(config.replicas)} replicas, and "
            "goes on with them: leave --replicas out, or found another with a new --name"
        )
    if args.stack is not None and args.stack.upper() != group.stack.upper():
        raise CoterieError(
            f"the group {config.cluster!r} was founded with the stack {group.stack}, and goes on "
            "with it: leave --stack out, or found another with a new --name"
        )
    changed = msgspec.structs.replace(
        group,
        class_=group.class_ if args.cls is None else _portable(args.cls),
        sync=group.sync if args.sync is None else Sync(args.sync),
    )
    if changed != group:
        config = msgspec.structs.replace(config, groups={config.cluster: changed})
        config = parse_config(encode_config(config), source=str(folder / CONFIG))
        write_config(folder, config)
    return config


class ServeSession:
    """One run of the command; what happens is printed, or written to *log*."""

    def __init__(self, served: Served, *, as_json: bool, log: Path | None = None) -> None:
        self._served = served
        self._as_json = as_json
        self._paint = Paint()
        self._write = _print if log is None else _log_to(log)
        self._view: object = None
        self._roles: dict[str, str] = {}
        self._was_primary: set[str] = set()
        self._zombies: set[str] = set()
        self._has_served = False
        self._is_stopping = False

    async def run(self) -> int:
        """Serve until told to stop; give the exit status."""
        served = self._served
        supervisor = Supervisor(served.folder, served.config, self.say)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            supervisor.stop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)  # a second one ends us at once

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        self._say_start()
        if await supervisor.run():
            return exits.DONE
        self._print("", "no replica is left, because starting them again would change nothing")
        return exits.NOT_DONE

    def _say_start(self) -> None:
        served, config = self._served, self._served.config
        group = config.groups[config.cluster]
        if self._as_json:
            addresses = {id: each.clients for id, each in config.replicas.items()}
            self.say("serving", {"group": config.cluster, "clients_at": addresses})
            return
        self._write(
            f"{'Founding' if served.is_new else 'Going on with'} the group "
            f"{self._paint(config.cluster, 'bold')}: {len(config.replicas)} replicas of "
            f"{served.definition.name} ({group.stack}, sync = {group.sync.value})\n"
            f"in {served.folder}. Only this machine can reach them. Ctrl-C stops them."
        )

    # ---- what happens

    def say(self, name: str, fields: dict[str, object]) -> None:
        """Print what happened."""
        if self._as_json:
            line = {"event": name, "at": time.time(), **fields}
            self._write(json.dumps(line, default=str))
            return
        id = str(fields.get("replica", ""))
        paint = self._paint
        match name:
            case "started":
                self._roles[id] = ""
                self._was_primary.discard(id)
                self._zombies.discard(id)
                life = fields.get("incarnation")
                self._print(id, f"started: life {life}, clients at {fields.get('clients_at')}")
            case "role":
                self._say_role(id, fields)
            case "ended":
                pause = f"starts again in {fields['pause']:g} s"
                self._print(id, f"{paint(str(fields['reason']), 'red')}; {pause}")
            case "given up":
                self._print(id, f"{paint(str(fields['reason']), 'red')}; it is not started again")
            case "line":
                self._print(id, str(fields["text"]))
            case "stopping" | "stopped" if not id:
                self._is_stopping = True
                self._print("", name)
            case "stopping" | "stopped":
                pass
            case _:
                told = " ".join(
                    f"{field}={value}"
                    for field, value in fields.items()
                    if field not in {"replica", "level", "at", "process", "port"}
                )
                self._print(id, f"{paint(name, 'yellow')} {told}".rstrip())

    def _say_role(self, id: str, fields: dict[str, object]) -> None:
        """Tell each primary view once, and of a replica only what is not as it should be."""
        role, view, members = str(fields["role"]), fields["view"], fields["members"]
        paint = self._paint
        before, self._roles[id] = self._roles.get(id, ""), role
        with_whom = " ".join(members) if isinstance(members, list) else ""
        if role == Role.PRIMARY.value:
            self._was_primary.add(id)
            if before == Role.LEARNER.value or id in self._zombies:
                self._zombies.discard(id)
                self._print(id, f"is up to date, at {fields['position']}")
            if view != self._view:
                self._view = view
                self._print("", f"{paint('primary view', 'green')}: {with_whom}")
                if not self._has_served:
                    self._has_served = True
                    self._print("", f"try: coterie call {self._served.name} {self._example()}")
        elif "zombie" in fields:
            if id not in self._zombies:
                self._zombies.add(id)
                self._print(id, f"{paint('zombie', 'yellow')}: {fields['zombie']}")
        elif role == Role.LEARNER.value and before != role:
            self._print(id, f"{paint('is brought up to date', 'yellow')}")
        elif role == Role.MINORITY.value and id in self._was_primary:
            self._was_primary.discard(id)  # one that has just started is alone at first
            if not self._is_stopping:
                self._print(id, f"{paint('minority', 'yellow')}: {with_whom}")

    def _example(self) -> str:
        for method in self._served.definition.methods.values():
            return " ".join([method.name, *(each.name.upper() for each in method.arguments)])
        return ""

    def _print(self, id: str, text: str) -> None:
        now = self._paint(time.strftime("%H:%M:%S"), "faint")
        width = max(map(len, self._served.config.replicas))
        self._write(f"{now} {self._paint(id.ljust(width), 'blue')} {text}")


def _print(line: str) -> None:
    print(line, flush=True)


def _log_to(file: Path) -> Callable[[str], None]:
    """Give what writes lines to a file, and begins a new one when it has become long."""
    handler = RotatingFileHandler(file, maxBytes=LOG_BYTES_MAX, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))

    def write(line: str) -> None:
        handler.emit(logging.LogRecord("coterie", logging.INFO, "", 0, line, None, None))

    return write


# ---- detached


def serve_detached(served: Served, *, as_json: bool) -> int:
    """Start a supervisor of its own session; return when the group serves."""
    log = served.folder / LOG
    # What goes to the error stream is there when the process could not even begin to log.
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(  # noqa: S603 -- ourselves
            [
                *(sys.executable, "-m", "coterie.cli", "serve"),
                *("--name", served.name, "--log", log),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    deadline = time.monotonic() + READY_SECONDS
    majority = len(served.config.replicas) // 2 + 1
    while time.monotonic() < deadline and process.poll() is None:
        try:
            seen = give_order(served.folder, Look()).processes
        except NobodyThere:
            seen = []
        if sum(each.role == Role.PRIMARY.value for each in seen) >= majority:
            _say_detached(served, process.pid, as_json=as_json)
            return exits.DONE
        time.sleep(0.05)
    tail = log.read_text(encoding="utf-8").splitlines()[-5:]
    print("\n".join(tail), file=sys.stderr)
    is_running = process.poll() is None
    state = "does not serve yet; it goes on trying" if is_running else "could not be started"
    print(f"coterie: the group {served.name!r} {state} (see {log})", file=sys.stderr)
    return exits.NOT_DONE


def _say_detached(served: Served, pid: int, *, as_json: bool) -> None:
    addresses = {id: each.clients for id, each in served.config.replicas.items()}
    if as_json:
        start = {"event": "serving", "group": served.name, "pid": pid, "clients_at": addresses}
        print(json.dumps(start))
        return
    print(
        f"The group {served.name} serves: {', '.join(addresses.values())} (this machine only).\n"
        f"coterie status {served.name} shows it, coterie stop {served.name} ends it, "
        f"{served.folder / LOG} tells what happens."
    )
