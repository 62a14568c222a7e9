"""One process of a benchmark: a raw echo, a member of a group, a replica, a client, a rival.

Started as `python -m coterie.bench.worker`; it takes orders (`coterie.bench.words`) on standard
input and answers each on standard output, so that the conductor can start all members first and
tell each where the others listen. It ends with its input.
"""

from __future__ import annotations

import socket

from coterie.bench.dialling import be_clients
from coterie.bench.echo import measure_echo, serve_echo
from coterie.bench.hosting import be_group, be_replica
from coterie.bench.rival import be_rival
from coterie.bench.rowing import be_member
from coterie.bench.serving import be_served
from coterie.bench.speech import Orders, answer
from coterie.bench.tellers import be_accounts, be_tellers
from coterie.bench.words import (
    Dial,
    Echo,
    Host,
    HostAll,
    Join,
    Keep,
    Listening,
    Measured,
    Rival,
    Serve,
    Tell,
)
from coterie.runtime.garbage import calm_collector
from coterie.runtime.loop import run


async def work() -> None:  # noqa: C901, PLR0911 -- a table
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
                case Host():
                    await be_replica(order, listener, orders)
                    return
                case HostAll():
                    await be_group(order, orders)
                    return
                case Serve():
                    await be_served(order, orders)
                    return
                case Dial():
                    await be_clients(order, orders)
                    return
                case Keep():
                    await be_accounts(order, orders)
                    return
                case Tell():
                    await be_tellers(order, orders)
                    return
                case Rival():
                    await be_rival(order, orders)
                    return
                case Echo():
                    calm_collector()
                    took, cpu = await measure_echo(
                        order.port, order.count, order.warm_up, order.message_bytes
                    )
                    answer(Measured(took, cpu))
                case _:
                    raise AssertionError(order)


if __name__ == "__main__":
    run(work())
