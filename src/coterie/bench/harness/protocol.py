"""What the controller of a benchmark and its workers say to each other: lines of JSON.

The controller gives orders; each is answered by one line.
"""

from __future__ import annotations

import msgspec

# ---- orders


class Pin(msgspec.Struct, tag=True):
    """Run on this core only; answered by `OrderDone`."""

    core: int


class Echo(msgspec.Struct, tag=True):
    """Measure the raw round trip to an echo server; answered by `Latencies`."""

    port: int
    count: int
    warm_up: int
    message_bytes: int


class Join(msgspec.Struct, tag=True):
    """Become a member of a group; answered by `OrderDone` when all of them are in one view."""

    id: str
    peers: dict[str, int]
    stack: str
    recordings: str = ""
    profile: str = ""
    hold_us: int = 0
    """For how long the token is kept, in a stack that has one."""


class Rounds(msgspec.Struct, tag=True):
    """Send in rounds together with all other members; answered by `Measured`."""

    count: int
    warm_up: int
    messages: int
    message_bytes: int


class Pace(msgspec.Struct, tag=True, kw_only=True):
    """Cast at an even pace for a while, as one of several members; answered by `Latencies`."""

    rate: float
    """Messages a second of this member."""
    seconds: float
    warm_up: float
    message_bytes: int
    is_safe: bool
    """Whether messages are delivered once all members have them."""


class HostReplica(msgspec.Struct, tag=True, kw_only=True):
    """Become a replica of an object; answered by `OrderDone` when all are in one primary view."""

    id: str
    peers: dict[str, int]
    stack: str
    subject: str
    """The name of a class in `coterie.bench.workloads.objects`."""
    folder: str = ""
    """Where the journal is kept; nowhere if it is empty."""
    sync: str = "none"
    is_founder: bool = True
    is_patient: bool = True
    """Whether a silent peer is given seconds, because there are fewer cores than replicas."""
    port: int = 0
    """Where to listen, if not where the worker does already."""
    profile: str = ""


class HostAllReplicas(msgspec.Struct, tag=True, kw_only=True):
    """Become all replicas of an object, in one process; answered by `OrderDone` when they serve."""

    replicas: int
    stack: str
    subject: str
    profile: str = ""


class _Begin(msgspec.Struct, tag=True, kw_only=True):
    """Become a process of a deployment, with a folder and two ports."""

    id: str = ""
    ports: dict[str, tuple[int, int]] = {}
    """Where each process listens for the others, and for clients."""
    hosts: dict[str, str] = {}
    """At which address each is; loopback where nothing is said."""
    stack: str
    folder: str = ""
    is_founder: bool = True
    is_patient: bool = True
    profile: str = ""


class Serve(_Begin, tag=True, kw_only=True):
    """Become a replica that takes clients; answered by `OrderDone` once all are in one view."""

    sync: str
    groups: int = 1
    """How many groups it hosts; clients speak to the first."""


class AwaitMembers(msgspec.Struct, tag=True):
    """Wait until every group here has so many members; answered by `OrderDone`."""

    members: int


class ServeAccounts(_Begin, tag=True, kw_only=True):
    """Become a process with replicas of accounts; answered by `OrderDone`.

    See `coterie.bench.workloads.transfer_workload`. The stack is that of the group which is there
    to compare with.
    """

    sync: str = "none"


class ConnectAccounts(msgspec.Struct, tag=True):
    """Become clients of accounts; answered by `OrderDone`."""

    addresses: list[str]
    profile: str = ""


class Transact(msgspec.Struct, tag=True):
    """Run one transaction after the other; answered by `Latencies`."""

    way: str
    kind: str
    count: int
    warm_up: int


class TransactTogether(msgspec.Struct, tag=True):
    """Keep so many running at a time; answered by `OrderDone`."""

    way: str
    kind: str
    together: int


class CountPrepares(msgspec.Struct, tag=True):
    """Say how often a participant was asked to prepare so far; answered by `Counted`."""


class ConnectClients(msgspec.Struct, tag=True):
    """Become clients of a group, in place of those there were; answered by `OrderDone`."""

    addresses: list[str]
    connections: int
    profile: str = ""
    is_near: bool = False
    """Whether each is with the replica that answers soonest."""


class ConnectPeers(msgspec.Struct, tag=True):
    """Become clients of another system, in place of those there were; answered by `OrderDone`."""

    system: str
    port: int
    connections: int


class JoinPySyncObj(msgspec.Struct, tag=True):
    """Become a node of PySyncObj; answered by `OrderDone` when it has joined the others."""

    port: int
    peers: list[int]
    batches: bool
    """Whether it waits for its clock to send what has gathered, as it does by default."""


class Alone(msgspec.Struct, tag=True):
    """Make one call after the other; answered by `Latencies`."""

    count: int
    warm_up: int
    message_bytes: int
    colour: str = ""
    """Which answer ends a call, in a group over a partitioned network."""
    reads: bool = False
    """Whether the calls are consistent queries."""


class Load(msgspec.Struct, tag=True):
    """Keep sessions busy with calls; answered by `OrderDone` when all are open."""

    sessions: int
    calls: int
    """How many calls of a session are outstanding."""
    message_bytes: int
    is_packed: bool
    """Whether the calls of a session travel as one entry."""


class Fill(msgspec.Struct, tag=True):
    """Make the object large; answered by `OrderDone`."""

    values: int
    value_bytes: int


class TakeSample(msgspec.Struct, tag=True):
    """Say what happened since the last sample; answered by `Sampled`."""


class StopLoad(msgspec.Struct, tag=True):
    """Have no more calls made; answered by `OrderDone` when all are answered."""


WorkerOrder = (
    Echo
    | Pin
    | Join
    | Rounds
    | Pace
    | HostReplica
    | HostAllReplicas
    | Serve
    | AwaitMembers
    | ServeAccounts
    | ConnectAccounts
    | Transact
    | TransactTogether
    | CountPrepares
    | ConnectClients
    | ConnectPeers
    | JoinPySyncObj
    | Alone
    | Load
    | Fill
    | TakeSample
    | StopLoad
)

# ---- answers


class Listening(msgspec.Struct, tag=True):
    """Where this worker listens, and where its echo server does."""

    port: int
    echo_port: int


class OrderDone(msgspec.Struct, tag=True):
    """What was ordered is done."""


class Measured(msgspec.Struct, tag=True):
    """How long the rounds took after the warm-up, and what of it was our own processor time."""

    seconds: float
    cpu_seconds: float
    turns: int = 0


class Sampled(msgspec.Struct, tag=True, kw_only=True):
    """What happened at a worker since it was asked last."""

    seconds: float
    cpu_seconds: float
    calls: int
    """How many calls were answered."""
    gap_seconds: float
    """The longest time without an answer."""
    pause_seconds: float
    """The longest time in which the loop did one thing only, or did not get the processor."""
    turns: int
    memory_bytes: int
    """Resident memory of the process, at the end of the sample."""
    learning_seconds: float = 0.0
    """How long the replica was a learner, in its whole life."""
    is_orderer: bool = False
    """Whether this replica puts messages into order at present."""


class Latencies(msgspec.Struct, tag=True):
    """How long calls took, in microseconds: half of them at most, and all but one in a hundred."""

    median_us: float
    p99_us: float
    cpu_us: float
    """The caller's processor time for each."""


class Counted(msgspec.Struct, tag=True):
    """How often a participant was asked to prepare, and had to wait for its backups first."""

    prepares: int
    waited: int


WorkerAnswer = Listening | OrderDone | Measured | Sampled | Latencies | Counted
