"""Five hosts in network namespaces, with agents, a manager, and clients: what they go through.

    python -m tests.service.manage.machines          # as root; prints what was found

Hosts are killed, disks lost, the acting manager is cut off and killed in the middle of a change.
After each fault all groups have to be whole again; clients call all the while. What is found is
printed: seconds to full strength, calls, and the longest gap.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests.patience import PATIENCE
from tests.service.test_multicast import COTERIE, Network

HOSTS = ("h1", "h2", "h3", "h4", "h5", "client")
MANAGERS = HOSTS[:3]
MANAGED = HOSTS[:5]
CALLED = ("seats", "visits")
FIXED = "bank"
"""Its members do not change: agents start them again, and one whose disk is lost stays away."""

POLICY = """
[groups.seats]
class = "coterie.ready:Counter"
replicas = 3
spread = ["zone"]
prefer = ["h5", "h4"]
sync = "turn"
replace_after = 6

[groups.visits]
class = "coterie.ready:Counter"
stack = "SAFE:TOKEN:PVSYNC"
prefer = ["h4", "h5"]
replicas = 3
spread = ["zone"]
replace_after = 6

[groups.bank]
class = "coterie.ready:Counter"
engine = "vsr"
only = { manager = "yes" }
replicas = 3
replace_after = 6
"""

CALLER = """
import asyncio, json, sys, time
import coterie
from coterie.client import ClientSettings
from coterie.ready import Counter

async def main():
    group, secret, addresses = sys.argv[1], open(sys.argv[2], "rb").read().strip(), sys.argv[3:]
    settings = ClientSettings(deadline=20.0)
    given = {"group": group, "secret": secret, "settings": settings}
    async with coterie.connect(Counter, addresses, **given) as c:
        last = time.monotonic()
        while True:
            told = {"group": group}
            try:
                told["total"] = await c.add(1)
            except coterie.OutcomeUnknown as error:
                told["unknown"] = str(error)
            except coterie.CoterieError as error:
                told["not done"] = str(error)
            now = time.monotonic()
            told["gap"], last = now - last, now
            print(json.dumps(told), flush=True)
            await asyncio.sleep(0.05)

asyncio.run(main())
"""


class ManagedMachines:
    """Everything that runs, and what is done to it."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network, self.folder = network, folder
        self.processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self.dead: set[str] = set()
        self._ended = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._write_files()
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
        for host in self.network.hosts:
            self._kill_all(host)
        for process in self.processes.values():
            process.wait()
        self._ended.close()

    # ---- files

    def _write_files(self) -> None:
        secret = self.folder / "manager.secret"
        secret.write_text("5" * 64 + "\n", encoding="ascii")
        secret.chmod(0o600)
        policy = ["number = 1"]
        for host in MANAGED:
            address = self.network.address(host)
            runs = "yes" if host in MANAGERS else "no"
            policy += [f"[hosts.{host}]", f'agent = "{address}:7300"']
            lines = [
                f'host = "{host}"',
                f'listen = "{address}:7300"',
                f'dir = "{self.folder / host / "agent"}"',
                f'secret_file = "{secret}"',
                f'labels = {{ zone = "{"abc"[MANAGED.index(host) % 3]}", manager = "{runs}" }}',
            ]
            (self.folder / f"{host}.toml").write_text("\n".join(lines), encoding="utf-8")
        (self.folder / "policy.toml").write_text("\n".join(policy) + POLICY, encoding="utf-8")
        config = [
            'cluster = "manager"',
            "[groups.manager]",
            'class = "coterie.manager.management:Management"',
            'sync = "turn"',
            "[security]",
            "allow_open = true",
        ]
        for host in MANAGERS:
            address = self.network.address(host)
            config += [
                f"[replicas.{host}]",
                f'listen = "{address}:7001"',
                f'clients = "{address}:7101"',
                f'dir = "{self.folder / host / "manager"}"',
            ]
        (self.folder / "manager.toml").write_text("\n".join(config), encoding="utf-8")
        (self.folder / "caller.py").write_text(CALLER, encoding="utf-8")

    # ---- processes

    def start(self, host: str, what: str, *command: str) -> None:
        """Start something on a host once its last life is over; what it says is in a file."""
        before = self.processes.pop((host, what), None)
        if before is not None:
            before.wait(timeout=PATIENCE)
        with (self.folder / f"{host}.{what}.log").open("ab") as log:
            self.processes[host, what] = subprocess.Popen(
                self.network.inside(host, *command), stdout=log, stderr=log
            )

    def start_host(self, host: str, *, found: bool = False) -> None:
        """Start all that belongs on a host."""
        self.dead.discard(host)
        self.start(host, "agent", *COTERIE, "agent", str(self.folder / f"{host}.toml"), "--json")
        if host in MANAGERS:
            replica = [*COTERIE, "replica", "--config", str(self.folder / "manager.toml")]
            self.start(host, "ledger", *replica, "--id", host, *(["--found"] if found else []))
            self.start_manager(host)

    def start_manager(self, host: str) -> None:
        """Start an instance of the manager."""
        manage = [*COTERIE, "manage", str(self.folder / "policy.toml"), "--name", host, "--json"]
        manage += ["--config", str(self.folder / "manager.toml")]
        manage += ["--agents-secret", str(self.folder / "manager.secret")]
        script = f"while ! {' '.join(manage)}; do sleep 1; done"
        self.start(host, "manage", "bash", "-c", script)

    def kill_host(self, host: str) -> None:
        """Take the power from a host."""
        self.dead.add(host)
        self._kill_all(host)

    def _kill_all(self, host: str) -> None:
        while True:
            pids = subprocess.run(
                ["ip", "netns", "pids", self.network.name(host)],  # noqa: S607
                capture_output=True,
                check=False,
            ).stdout.split()
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)

    def lose_disk(self, host: str) -> None:
        """Lose what an agent and its replicas have kept; the manager's own group stays."""
        shutil.rmtree(self.folder / host / "agent")

    def cut(self, host: str, *, is_cut: bool) -> None:
        """Cut a host off, or join it again."""
        home, port = self.network.name("net"), f"p{host}"[:8]
        state = "down" if is_cut else "up"
        subprocess.run(["ip", "-n", home, "link", "set", port, state], check=True)  # noqa: S607

    def kill_manager(self, host: str) -> None:
        """Kill the instance on a host; it starts again a second later."""
        for pid in subprocess.run(
            ["ip", "netns", "pids", self.network.name(host)],  # noqa: S607
            capture_output=True,
            check=False,
        ).stdout.split():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{int(pid)}/cmdline").read_bytes().split(b"\0")
                if b"manage" in words:
                    os.kill(int(pid), signal.SIGKILL)

    # ---- what is seen

    def status(self) -> dict[str, Any] | None:
        """Give what the manager tells, asked at any host that is up."""
        command = [*COTERIE, "status", "manager", "--json", "--deadline", "3"]
        command += ["--config", str(self.folder / "manager.toml")]
        ran = subprocess.run(
            self.network.inside("client", *command), capture_output=True, check=False
        )
        try:
            told: dict[str, Any] = json.loads(ran.stdout)
        except ValueError:
            return None
        return told.get("managed")

    def missing(self, told: dict[str, Any] | None) -> str:  # noqa: PLR0911 -- one for each
        """Say what is not as it is wanted."""
        if told is None:
            return "the manager's group does not answer"
        state, notes = told["state"], told["notes"]
        if state["policy"] is None or state["open"] or not state["holder"]:
            return f"{state['holder'] or 'nobody'} acts; under way: {state['open']}"
        for group in state["policy"]["groups"]:
            note = notes["groups"].get(group)
            if group == FIXED:
                at_home = [
                    each["id"]
                    for each in state["placements"]
                    if each["group"] == FIXED and each["host"] not in self.dead
                ]
                if note is None or any(note["roles"].get(id) not in IN_SERVICE for id in at_home):
                    return f"{group}: {note}"
                continue
            if note is None or len(note["members"]) != 3 or note["why_not"]:
                return f"{group}: {note}"
            placed = {each["id"]: each["host"] for each in state["placements"]}
            if {placed.get(id) for id in note["members"]} & self.dead:
                return f"{group} counts on a dead host: {note}"
            serving = [id for id in note["members"] if note["roles"].get(id) in IN_SERVICE]
            if len(serving) < len(note["members"]):
                return f"{group}: {note['roles']}"
        return ""

    def wait_until_whole(self) -> float:
        """Wait until all is as it is wanted; give the seconds."""
        begun = time.monotonic()
        while missing := self.missing(self.status()):
            if time.monotonic() - begun > PATIENCE:
                raise AssertionError(missing)
            time.sleep(1.5)
        return round(time.monotonic() - begun, 1)

    def placements(self) -> list[tuple[str, str]]:
        """Give the group and the host of every replica."""
        told = self.status()
        while told is None:
            told = self.status()
        return [(each["group"], each["host"]) for each in told["state"]["placements"]]

    def busiest(self, *hosts: str) -> str:
        """Give the one of some hosts that has most replicas."""
        placed = [host for _, host in self.placements()]
        return max(hosts, key=placed.count)

    def acting_host(self) -> str:
        """Give the host of the instance that acts."""
        while True:
            told = self.status()
            if told is not None and told["state"]["holder"]:
                return str(told["state"]["holder"]).partition("#")[0]
            time.sleep(0.5)

    def wait_until_begun(self, host: str) -> None:
        """Wait until the instance on a host has begun another change."""
        log = self.folder / f"{host}.manage.log"
        before = log.read_bytes().count(b'"log": "begin"')
        begun = time.monotonic()
        while log.read_bytes().count(b'"log": "begin"') == before:
            assert time.monotonic() - begun < PATIENCE, "nothing was begun"
            time.sleep(0.02)

    def call(self, group: str) -> None:
        """Have a client call a group from now on."""
        told = self.status()
        assert told is not None
        at = list(told["notes"]["groups"][group]["clients_at"].values())
        secret = next(self.folder.glob(f"h*/agent/secrets/{group}/owner"))
        kept = self.folder / f"{group}.secret"
        shutil.copy(secret, kept)
        self.start(
            "client", group, sys.executable, str(self.folder / "caller.py"), group, str(kept), *at
        )

    def calls(self, group: str) -> list[dict[str, Any]]:
        """Give what the client of a group was told."""
        text = (self.folder / f"client.{group}.log").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def orders(self) -> list[dict[str, Any]]:
        """Give all orders that agents carried out, in time."""
        found = []
        for host in MANAGED:
            text = (self.folder / f"{host}.agent.log").read_text(encoding="utf-8")
            for line in text.splitlines():
                with contextlib.suppress(ValueError):
                    told = json.loads(line)
                    if told.get("log") == "order":
                        found.append({**told, "host": host})
        return sorted(found, key=lambda each: each["at"])


IN_SERVICE = {"primary", "backup"}


def run(folder: Path) -> dict[str, Any]:
    """Go through all of it; give what was found."""
    found: dict[str, Any] = {"seconds": {}}
    seconds: dict[str, float] = found["seconds"]
    with Network(HOSTS) as network, ManagedMachines(network, folder) as machines:
        for host in MANAGED:
            machines.start_host(host, found=True)
        seconds["founded"] = machines.wait_until_whole()
        for group in CALLED:
            machines.call(group)

        machines.kill_host("h5")
        machines.lose_disk("h5")
        machines.start_host("h5")
        time.sleep(8)  # until that is seen, and told
        seconds["a disk was lost"] = 8 + machines_whole(machines)

        host = machines.busiest("h4", "h5")
        machines.kill_host(host)
        time.sleep(8)  # replace_after and a moment
        seconds["a host was killed"] = 8 + machines_whole(machines)
        machines.start_host(host)
        machines.wait_until_whole()

        acting = machines.acting_host()
        machines.cut(acting, is_cut=True)
        time.sleep(8)
        seconds["the acting manager was cut off"] = 8 + machines_whole(machines, without=acting)
        machines.cut(acting, is_cut=False)
        machines.wait_until_whole()

        acting = machines.acting_host()
        victim = machines.busiest("h4", "h5")
        machines.kill_host(victim)
        machines.wait_until_begun(acting)
        machines.kill_manager(acting)
        seconds["and the manager in the middle of it"] = machines_whole(machines)
        machines.start_host(victim)
        machines.wait_until_whole()

        for group in CALLED:
            machines.processes["client", group].kill()
            machines.processes["client", group].wait()
        found["calls"] = {group: machines.calls(group) for group in CALLED}
        found["orders"] = machines.orders()
    return found


def machines_whole(machines: ManagedMachines, *, without: str = "") -> float:
    """Wait until all is whole, as seen from the other hosts."""
    if without:
        machines.dead.add(without)
    try:
        return machines.wait_until_whole()
    finally:
        machines.dead.discard(without)


if __name__ == "__main__":
    told = run(Path(tempfile.mkdtemp(prefix="managed-")))
    print(json.dumps(told["seconds"], indent=2))  # noqa: T201
    for name, calls in told["calls"].items():
        done = [each for each in calls if "total" in each]
        print(  # noqa: T201
            f"{name}: {len(done)} calls done, {len(calls) - len(done)} not, longest gap "
            f"{max(each['gap'] for each in calls):.2f} s"
        )
