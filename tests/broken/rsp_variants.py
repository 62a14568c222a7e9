"""Deliberately broken variants of server groups (ONUS and its records); see `variants.py`."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from coterie.checking.servers import request_in
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.requests import ServiceRequest, encode_request
from coterie.objects.execution import machine_parts
from coterie.objects.execution.records import Records
from coterie.replication.onus import Onus, onus
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.servers import clients
from coterie.simulation.engines.servers.trial import ServerTrial
from coterie.simulation.engines.stack.trial import RunOptions
from coterie.simulation.faults import ALL_FAULTS
from coterie.stacks import LAYERS

if TYPE_CHECKING:
    from coterie.kernel.engine import Run, Standing
    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member, ViewId
    from coterie.objects.execution.outcomes import NotTaken

_NO_BODY = msgspec.Raw(msgspec.msgpack.encode(()))
_decode = msgspec.msgpack.Decoder(list[ServiceRequest]).decode


class OnlyIdsOrdered(Onus):
    """Orders the id of a request alone, as the paper does, and looks for its body (figure 4)."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._bodies: dict[tuple[int, int], ServiceRequest] = {}
        self._held: deque[tuple[list[Run], Standing, int]] = deque()

    def payload(self, request: ServiceRequest) -> bytes:
        return encode_request(replace(request, method="", arguments=_NO_BODY))

    def _keep(self, request: ServiceRequest) -> bool:
        if request.method:
            self._bodies[request.id] = request
        is_kept = super()._keep(request)
        self._go_on()
        return is_kept

    def receive_direct(self, sender: Member, body: bytes) -> None:
        for request in _decode(body):
            if request.method:
                self._keep(request)
            elif request.id in self._bodies:
                self.below.send_direct([sender], encode_request([self._bodies[request.id]]))

    def deliver_runs(self, runs: list[Run], standing: Standing) -> None:
        self._held.append((runs, standing, 0))
        self._go_on()

    def settle(self, position: int) -> None:
        self._held.append(([], 0, position))  # type: ignore[arg-type]
        self._go_on()

    def _go_on(self) -> None:
        """Deliver what is held, up to the first entry whose body nobody has sent yet."""
        while self._held:
            runs, standing, position = self._held[0]
            for run in runs:
                for payload in run.payloads:
                    request = request_in(payload)
                    if request and not request.method and request.id not in self._bodies:
                        self._look_for(request)
                        return
            self._held.popleft()
            if position:
                self.above.settle(position)
            else:
                self.above.deliver_runs([self._filled(run) for run in runs], standing)

    def _filled(self, run: Run) -> Run:
        payloads = []
        for payload in run.payloads:
            request = request_in(payload)
            if request is not None:
                body = self._bodies[request.id]
                whole = replace(request, method=body.method, arguments=body.arguments)
                payloads.append(encode_request(whole))
            else:
                payloads.append(payload)
        return replace(run, payloads=payloads)

    def _look_for(self, request: ServiceRequest) -> None:
        if self.context.timer_is_set("look for"):
            return
        if self._status is not None:
            others = [member for member in self._status.members if member != self.context.me]
            self.below.send_direct(others, encode_request([request]))
        self.context.set_timer("look for", milliseconds(100), self._go_on)


class OnusByLocalView(Onus):
    """Decides who answers by the view of the moment, not by that in which it was ordered."""

    def delivered(self, request: ServiceRequest, view: ViewId) -> bool:
        super().delivered(request, view)
        status = self._status
        return status is not None and onus(request.client, status.members) == self.context.me


class AnswersByAll(Onus):
    """Every replica commits the output."""

    def delivered(self, request: ServiceRequest, view: ViewId) -> bool:
        super().delivered(request, view)
        return True


class SynchronisedByAll(Onus):
    """Whoever receives a request proposes it."""

    def has_onus(self, client: int) -> bool:
        del client
        return self._status is not None


def evict_when_full(records: Records, request: ServiceRequest, now: int) -> NotTaken | None:
    """Make room for a newcomer by forgetting whoever was silent for longest."""
    del request, now
    while len(records.table) >= records._settings.clients_max:
        records._drop(next(iter(records.table)))
    return None


Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class BrokenServers:
    """A variant of the layer or of what it rests on, and the checks that must name it."""

    name: str
    caught_by: tuple[str, ...]
    kind: type[Onus] = Onus
    patches: tuple[Patch, ...] = ()
    first_seed: int = 0
    duration: int = 15
    faults: tuple[str, ...] = field(default=ALL_FAULTS)

    def fires(self, seed: int) -> set[str]:
        """Run a seed with the variant; give the checks that fired."""
        options = RunOptions(
            stack="ONUS:SAFE:DYNSEQ:PVSYNC",
            duration=seconds(self.duration),
            faults=self.faults,
            object="counter",
        )
        with ExitStack() as stack:
            for owner, name, value in self.patches:
                stack.enter_context(patch.object(owner, name, value))
            run = run_trial(ServerTrial(seed, options, layers={**LAYERS, "ONUS": self.kind}))
        return {violation.partition(":")[0] for violation in run.violations}


RSP_BROKEN = (
    BrokenServers("OnlyIdsOrdered", ("liveness", "convergence"), OnlyIdsOrdered, first_seed=1),
    BrokenServers("OnusByLocalView", ("RSP-2",), OnusByLocalView),
    BrokenServers("AnswersByAll", ("RSP-2",), AnswersByAll),
    BrokenServers("SynchronisedByAll", ("RSP-1",), SynchronisedByAll),
    BrokenServers(
        "RecordsNotTransferred",
        ("active replication", "RSP-1", "RSP-2"),
        patches=((machine_parts, "records_of", lambda _machine: iter(())),),
    ),
    BrokenServers(
        "EvictsWhenFull",
        ("RSP-1", "linearizability"),
        patches=(
            (Records, "why_not", evict_when_full),
            (clients, "SERVER_SETTINGS", replace(clients.SERVER_SETTINGS, clients_max=2)),
        ),
    ),
)
