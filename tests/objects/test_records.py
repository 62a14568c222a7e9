"""What is remembered of clients that know nothing of replication."""

from __future__ import annotations

import msgspec

from coterie.kernel.clock import seconds
from coterie.kernel.requests import ServiceRequest
from coterie.kernel.views import NO_VIEW
from coterie.objects import HostSettings
from coterie.objects.execution.outcomes import AlreadyForgotten, Done, NotTaken
from coterie.objects.execution.records import FULL, FULL_BYTES, TOO_OLD, Records

NOW = 1_700_000_000_000_000
LEASE = seconds(60)
SETTINGS = HostSettings(clients_max=2, client_lease=LEASE, replies_bytes_max=1000)


def request(client: int, number: int = 1, received: int = NOW) -> ServiceRequest:
    return ServiceRequest(client, number, "add", msgspec.Raw(b"\x90"), NOW, received)


def done(size: int = 1) -> Done:
    return Done(1, NO_VIEW, 1, b"x" * size)


def test_the_last_reply_is_given_again_and_what_is_older_is_not() -> None:
    records = Records(SETTINGS)
    reply = done()
    records.keep(request(1, 5), NOW, reply)
    assert records.before(request(1, 5)) is reply
    assert records.before(request(1, 4)) == AlreadyForgotten(5)
    assert records.before(request(1, 6)) is None
    assert [records.knows(1, number) for number in (4, 5, 6)] == [True, True, False]


def test_a_full_table_refuses_newcomers_and_serves_the_others() -> None:
    records = Records(SETTINGS)
    for client in (1, 2):
        assert records.why_not(request(client), NOW) is None
        records.keep(request(client), NOW, done())
    assert records.why_not(request(3), NOW) == NotTaken(FULL)
    assert records.why_not(request(1, 2), NOW) is None


def test_a_client_is_forgotten_only_after_its_lease() -> None:
    records = Records(SETTINGS)
    records.keep(request(1), NOW, done())
    records.keep(request(2), NOW + 1, done())
    late = NOW + LEASE
    assert records.why_not(request(3, received=late), late) == NotTaken(FULL)
    assert records.why_not(request(3, received=late + 1), late + 1) is None
    assert list(records.table) == [2]


def test_a_request_of_a_forgotten_client_that_was_long_on_its_way_is_refused() -> None:
    records = Records(SETTINGS)
    records.keep(request(1), NOW, done())
    late = NOW + LEASE + 1
    # A copy that its client sent within half a lease, and that waited somewhere.
    assert records.knows(1, 1)
    records.forget(late)
    assert not records.knows(1, 1)
    assert records.why_not(request(1, received=NOW + LEASE // 2), late) == NotTaken(TOO_OLD)
    assert records.why_not(request(1, received=NOW + LEASE // 2 + 1), late) is None


def test_bytes_of_replies_are_bounded() -> None:
    records = Records(SETTINGS)
    records.keep(request(1), NOW, done(1000))
    assert records.why_not(request(2), NOW) == NotTaken(FULL_BYTES)
    assert records.why_not(request(1, 2), NOW) is None, "its own reply is replaced"
    records.keep(request(1, 2), NOW, done())
    assert records.bytes == 0


def test_records_travel_in_order_of_last_use() -> None:
    records = Records(SETTINGS)
    records.keep(request(1), NOW, done())
    records.keep(request(2), NOW, done())
    records.keep(request(1, 2), NOW + 5, done(100))
    twin = Records(SETTINGS)
    for each in records.to_list():
        twin.take(*each)
    assert list(twin.table.items()) == list(records.table.items())
    assert [client for client, *_ in twin.to_list()] == [2, 1]
    assert twin.bytes == records.bytes == 100
