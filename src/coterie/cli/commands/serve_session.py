"""What `coterie serve` does between its start and its end."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.terminal.paint import Paint, as_one_line
from coterie.kernel.engine import Role
from coterie.service.operate.control import Look, NobodyThere, give_order
from coterie.service.operate.overview import IN_SERVICE
from coterie.service.operate.supervisor import Supervisor
from coterie.service.state_folder import LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from coterie.cli.commands.serve_preparing import Served
    from coterie.service.config import ClusterConfig
    from coterie.service.operate.control import ProcessSeen

LOG_BYTES_MAX = 1 << 20
"""There are two files of a log at most, of about this size each."""
READY_SECONDS = 30.0
"""How long a detached group may take until it serves."""


class ServeSession:
    """One run of the command; what happens is printed, or written to *log*."""

    def __init__(self, served: Served, *, as_json: bool, log: Path | None = None) -> None:
        self._served = served
        self._as_json = as_json
        self._paint = Paint()
        self._write = _print if log is None else _log_to(log)
        self._views: dict[str, object] = {}
        """The latest view of each group that was told."""
        self._roles: dict[tuple[str, str], str] = {}
        """The role of each replica that was told last, by group and replica."""
        self._was_primary: set[tuple[str, str]] = set()
        self._zombies: set[tuple[str, str]] = set()
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
        served, config, paint = self._served, self._served.config, self._paint
        if self._as_json:
            addresses = {id: each.clients for id, each in config.replicas.items()}
            self.say(
                "serving",
                {"group": config.cluster, "groups": list(config.groups), "clients_at": addresses},
            )
            return
        kinds = ", ".join(
            f"{paint(name, 'bold')}: {len(config.everyone(name))} replicas of "
            f"{served.definitions[name].name} ({group.kept_by}, sync = {group.sync.value})"
            for name, group in config.groups.items()
        )
        what = "the group" if len(config.groups) == 1 else f"{len(config.groups)} groups,"
        self._write(
            f"{'Founding' if served.is_new else 'Going on with'} {what} {kinds}\n"
            f"in {served.folder}. Only this machine can reach them. Ctrl-C stops them."
        )

    # ---- what happens

    def say(self, name: str, fields: dict[str, object]) -> None:
        """Print what happened."""
        if self._as_json:
            line = {"event": name, "at": time.time(), **fields}
            self._write(json.dumps(line, default=str))
            return
        # Names and reasons may come from a peer or a client, and must not look like lines of ours.
        fields = {
            field: as_one_line(value) if isinstance(value, str) else value
            for field, value in fields.items()
        }
        id = str(fields.get("replica", ""))
        paint = self._paint
        match name:
            case "started":
                self._begin_life(id)
                life = fields.get("incarnation")
                self._print(id, f"started: life {life}, clients at {fields.get('clients_at')}")
            case "role" if fields["group"] in self._served.config.groups:
                self._say_role(id, fields)
            case "role" | "registered":
                pass  # the location service is our own affair
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

    def _begin_life(self, id: str) -> None:
        """Forget what was told of a replica."""
        for group in self._served.config.groups:
            self._roles[group, id] = ""
            self._was_primary.discard((group, id))
            self._zombies.discard((group, id))

    def _say_role(self, id: str, fields: dict[str, object]) -> None:
        """Tell each primary view once, and of a replica only what is not as it should be."""
        role, members = str(fields["role"]), fields["members"]
        paint, group = self._paint, str(fields["group"])
        who = (group, id)
        of_group = f"{group}: " if len(self._served.config.groups) > 1 else ""
        before, self._roles[who] = self._roles.get(who, ""), role
        with_whom = " ".join(members) if isinstance(members, list) else ""
        if role in IN_SERVICE:
            self._was_primary.add(who)
            if before == Role.LEARNER.value or who in self._zombies:
                self._zombies.discard(who)
                self._print(id, f"{of_group}is up to date, at {fields['position']}")
        if role == Role.PRIMARY.value:
            leads = f"{fields['primary']} leads " if "primary" in fields else ""
            self._say_view(group, fields["view"], f"{of_group}%s: {leads}{with_whom}")
        elif "zombie" in fields:
            if who not in self._zombies:
                self._zombies.add(who)
                self._print(id, f"{of_group}{paint('zombie', 'yellow')}: {fields['zombie']}")
        elif role == Role.LEARNER.value and before != role:
            self._print(id, f"{of_group}{paint('is brought up to date', 'yellow')}")
        elif role == Role.MINORITY.value and who in self._was_primary:
            self._was_primary.discard(who)  # one that has just started is alone at first
            if not self._is_stopping:
                self._print(id, f"{of_group}{paint('minority', 'yellow')}: {with_whom}")

    def _say_view(self, group: str, view: object, text: str) -> None:
        if view != self._views.get(group):
            self._views[group] = view
            self._print("", text % self._paint("primary view", "green"))
            if not self._has_served:
                self._has_served = True
                example = self._example(group)
                if example:
                    self._print("", f"try: coterie call {group} {example}")

    def _example(self, group: str) -> str:
        for method in self._served.definitions[group].methods.values():
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
    while time.monotonic() < deadline and process.poll() is None:
        try:
            seen = give_order(served.folder, Look()).processes
        except NobodyThere:
            seen = []
        if _all_serve(served.config, seen):
            _say_detached(served, process.pid, as_json=as_json)
            return exits.DONE
        time.sleep(0.05)
    tail = log.read_text(encoding="utf-8").splitlines()[-5:]
    print("\n".join(tail), file=sys.stderr)
    is_running = process.poll() is None
    state = "does not serve yet; it goes on trying" if is_running else "could not be started"
    print(f"coterie: the group {served.name!r} {state} (see {log})", file=sys.stderr)
    return exits.NOT_DONE


def _all_serve(config: ClusterConfig, seen: Sequence[ProcessSeen]) -> bool:
    """Say whether a majority of the replicas of every group does its part."""
    for group in config.groups:
        roles = [each.roles.get(group, "") for each in seen]
        majority = len(config.everyone(group)) // 2 + 1
        if Role.PRIMARY.value not in roles or sum(map(IN_SERVICE.__contains__, roles)) < majority:
            return False
    return True


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
