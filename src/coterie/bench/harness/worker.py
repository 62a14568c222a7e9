"""One process of a benchmark: raw echo, member of a group, replica, client, or node of PySyncObj.

Started as `python -m coterie.bench.harness.worker`; it takes orders
(`coterie.bench.harness.protocol`) on standard input and answers each on standard output, so that
the controller can start all members first and tell each where the others listen. It ends with its
input.
"""

from __future__ import annotations

import socket

from coterie.bench.harness.echo import measure_echo, pin, serve_echo
from coterie.bench.harness.protocol import (
    ConnectAccounts,
    ConnectClients,
    ConnectPeers,
    Echo,
    HostAllReplicas,
    HostReplica,
    Join,
    JoinPySyncObj,
    Listening,
    OrderDone,
    Pin,
    Serve,
    ServeAccounts,
)
from coterie.bench.harness.worker_io import Orders, answer
from coterie.bench.workloads.clients import Callers, run_clients
from coterie.bench.workloads.measuring import summarize
from coterie.bench.workloads.peers.callers import PeerCallers
from coterie.bench.workloads.processes import be_served
from coterie.bench.workloads.pysyncobj import run_pysyncobj
from coterie.bench.workloads.replicas import be_group, be_replica
from coterie.bench.workloads.rounds import be_member
from coterie.bench.workloads.transfer_workload import run_accounts, run_transfer_clients
from coterie.runtime.garbage import calm_collector
from coterie.runtime.loop import run


async def work() -> None:  # noqa: C901, PLR0911, PLR0912 -- a table
    """Take orders until there are no more."""
    listener = socket.create_server(("127.0.0.1", 0))
    orders = await Orders.open()
    async with serve_echo() as echo_port:
        answer(Listening(listener.getsockname()[1], echo_port))
        async for order in orders:
            match order:
                case Join():
                    await be_member(order, listener, orders)
                    return
                case HostReplica():
                    await be_replica(order, listener, orders)
                    return
                case HostAllReplicas():
                    await be_group(order, orders)
                    return
                case Serve():
                    await be_served(order, orders)
                    return
                case ConnectClients():
                    await run_clients(Callers(), order, orders)
                    return
                case ConnectPeers():
                    await run_clients(PeerCallers(), order, orders)
                    return
                case ServeAccounts():
                    await run_accounts(order, orders)
                    return
                case ConnectAccounts():
                    await run_transfer_clients(order, orders)
                    return
                case JoinPySyncObj():
                    await run_pysyncobj(order, orders)
                    return
                case Echo():
                    calm_collector()
                    trips = await measure_echo(
                        order.port, order.count, order.warm_up, order.message_bytes
                    )
                    answer(summarize(trips, 0.0))
                case Pin():
                    pin(order.core)
                    answer(OrderDone())
                case _:
                    raise AssertionError(order)


if __name__ == "__main__":
    run(work())
