"""The paper's own interface (**objects** section 7) on real processes, journals and clients."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import idle_time
from tests.patience import PATIENCE
from tests.service.vsr_deployment import Deployment

from coterie.client import NotDone, connect_untyped
from coterie.client.access import Access
from coterie.client.paper import ClientSystem
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS
from coterie.objects.paper import Client
from coterie.service.config import GroupConfig
from coterie.service.engines.stack_paper import HostedPaperObject

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.views import Member

EXAMPLE = Path(__file__).parents[2] / "examples" / "replicated_value.py"
VALUE = f"{EXAMPLE}:ValueReplica"


class Listener(Client):
    """Hears everything."""

    def __init__(self, system: ClientSystem) -> None:
        super().__init__(system, "listener")
        self.replies: list[tuple[Member, bytes]] = []
        self.changed = asyncio.Event()

    def receive_reply_callback(self, origin: Member, reply: bytes) -> None:
        self.replies.append((origin, reply))
        self.changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()


def values_of(deployment: Deployment) -> dict[str, int]:
    found = {}
    for id, process in deployment.running.items():
        hosted = process.hosted["value"]
        assert isinstance(hosted, HostedPaperObject)
        replicated: Any = hosted.object
        found[id] = replicated.state
    return found


@pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "DYNSEQ:PVSYNC"])
def test_7_5_the_example_is_served_journalled_and_recovered(tmp_path: Path, stack: str) -> None:
    """An update through one replica is at all of them, also after all were started again."""

    async def story() -> None:
        deployment = Deployment(tmp_path, {"value": GroupConfig(class_=VALUE, stack=stack)})
        await deployment.start_all()
        example = sys.modules["replicated_value"]  # loaded by the service, as operators do
        system = ClientSystem(
            deployment.seeds, group="value", access=Access(), settings=DEFAULT_CLIENT_SETTINGS
        )
        await system.open()
        try:
            listener = Listener(system)
            listener.send_request(example.pack((example.RequestType.UPDATE, 42)))
            await deployment.until(lambda: set(values_of(deployment).values()) == {42})
            listener.send_request(example.pack((example.RequestType.READ,)))
            await listener.until(lambda: bool(listener.replies))
            [(origin, reply)] = listener.replies
            assert origin.id in deployment.running
            assert example.unpack(reply) == 42
            # What makes no sense to the object is its own affair, and stops nobody.
            listener.send_request(b"\xc1")
            listener.send_request(example.pack((example.RequestType.READ,)))
            await listener.until(lambda: len(listener.replies) == 2)
        finally:
            await system.close()
        await deployment.end_all()
        await deployment.start_all(found=False)
        await deployment.until(lambda: set(values_of(deployment).values()) == {42})
        await deployment.end_all()

    idle_time.run(story())


def test_other_clients_are_told_whose_object_it_is(tmp_path: Path) -> None:
    async def story() -> None:
        deployment = Deployment(tmp_path, {"value": GroupConfig(class_=VALUE)})
        await deployment.start_all()
        try:
            async with connect_untyped(deployment.seeds, group="value") as value:
                assert value.report.class_name == "ValueReplica"
                assert value.report.methods == []
                with pytest.raises(NotDone, match="the paper's own interface"):
                    await value.connection.session.open()
        finally:
            await deployment.end_all()

    idle_time.run(story())


@pytest.mark.slow  # real processes, one of which is killed
def test_7_5_the_example_as_programs(tmp_path: Path) -> None:
    """Figures 9 and 10 as processes: what one client has set another reads, through a kill -9."""
    command = [sys.executable, "-m", "coterie.cli", "serve", f"value={VALUE}"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as serving:
        try:
            assert serving.stdout is not None
            addresses = []
            for line in serving.stdout:
                addresses += re.findall(r"clients at (\S+)", line)
                if "primary view: " in line and len(line.rpartition(": ")[2].split()) == 3:
                    break
            assert len(addresses) == 3

            def run(*words: str) -> str:
                program = [sys.executable, str(EXAMPLE), *words]
                return subprocess.run(
                    program,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=True,
                    env=environment,
                ).stdout

            def run_until(said: str, *words: str) -> None:
                # A read of the paper's example is answered by one replica from its own state,
                # which may be behind what another has already told its client.
                deadline = time.monotonic() + PATIENCE
                while run(*words) != said:
                    assert time.monotonic() < deadline, f"never {said!r}"

            assert run(addresses[0], "42") == "the value is 42\n"
            run_until("the value is 42\n", addresses[1])
            children = Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text("ascii")
            os.kill(int(children.split()[0]), signal.SIGKILL)
            assert run(addresses[2], "43") == "the value is 43\n"
            run_until("the value is 43\n", addresses[1])
        finally:
            serving.send_signal(signal.SIGINT)
