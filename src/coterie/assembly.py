"""How a process and a replica are put together; every driver does it here.

The simulator, a local group and the runtime differ in where time, frames and records go, not in
what they drive.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from coterie.kernel.layers import Context
from coterie.kernel.process import Process
from coterie.kernel.transfer import TakeSnapshot, encode_now
from coterie.kernel.views import Member
from coterie.membership.detector import HeartbeatDetector
from coterie.objects.host import ObjectHost
from coterie.objects.settings import DEFAULT_HOST_SETTINGS
from coterie.replication.layer import EngineLayer
from coterie.replication.onus import Onus
from coterie.stacks import (
    LAYERS,
    build_engine,
    is_globally_safe,
    is_ordered,
    is_partitioned,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coterie.kernel.engine import Past
    from coterie.kernel.layers import Layer
    from coterie.kernel.replica import Replica
    from coterie.kernel.settings import Settings
    from coterie.kernel.views import Configuration, ReplicaId
    from coterie.objects import Definition, HostSettings
    from coterie.objects.fronts import Front


def make_process(
    id: ReplicaId, incarnation: int, peers: Sequence[ReplicaId], settings: Settings
) -> Process:
    """Make a process with its failure detector; *peers* may name the process itself."""
    detector = HeartbeatDetector(id, incarnation, peers, settings)
    return Process(
        id=id, incarnation=incarnation, peers=peers, detector=detector, settings=settings
    )


def make_context(  # noqa: PLR0913 -- all by name
    process: Process,
    group: str,
    configuration: Configuration,
    *,
    random: Random | None = None,
    recording: bool = True,
    past: Past | None = None,
) -> Context:
    """Make what the layers of one replica in *process* are given."""
    return Context(
        group=group,
        me=Member(process.id, process.incarnation),
        configuration=configuration,
        settings=process.settings,
        random=Random() if random is None else random,  # noqa: S311 -- chooses among equals
        surroundings=process,
        recording=recording,
        past=past,
    )


def make_object(  # noqa: PLR0913 -- all by name
    definition: Definition,
    stack: str,
    context: Context,
    front: Front,
    *,
    settings: HostSettings = DEFAULT_HOST_SETTINGS,
    clock: Callable[[], int] | None = None,
    take_snapshot: TakeSnapshot = encode_now,
    layers: Mapping[str, type[Layer]] = LAYERS,
) -> tuple[Replica, ObjectHost]:
    """Make a replica that executes an object of a class, and the host that executes it."""
    host = ObjectHost(
        definition,
        context,
        front=front,
        clock=clock,
        is_ordered=is_ordered(stack, layers),
        confirms_reads=is_globally_safe(stack, layers),
        has_colours=is_partitioned(stack),
        settings=settings,
        take_snapshot=take_snapshot,
    )
    replica = build_engine(stack, context, host, layers)
    engine = replica.layers[0]
    assert isinstance(engine, EngineLayer)
    host.engine = engine
    if isinstance(engine, Onus):
        host.synchroniser, engine.served = engine, host
    return replica, host


def engine_of(replica: Replica) -> EngineLayer:
    """Give the engine of a replica of a stack that has one."""
    engine = replica.layers[0]
    assert isinstance(engine, EngineLayer), "the stack has an engine"
    return engine
