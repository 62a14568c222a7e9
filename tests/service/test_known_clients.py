"""Who a client is, what it may do, and how often."""

from __future__ import annotations

import pytest

from coterie.protocol.handshake import HandshakeFailed
from coterie.ready.locations import LOCATIONS
from coterie.service.known_clients import (
    ANYBODY,
    OPERATE,
    READ,
    WRITE,
    KnownClient,
    KnownClients,
)
from coterie.service.rates import TokenBucket

SOME = KnownClient("some", may={"seats": "read", "bank": ("balance", "deposit")})
REST = KnownClient("rest", may={"*": "write", "bank": "read"})


def certificate(*names: str) -> dict[str, object]:
    return {
        "subject": ((("organizationName", "client-some"),), (("commonName", names[0]),)),
        "subjectAltName": tuple(("DNS", name) for name in names[1:]),
    }


def test_without_a_word_a_client_may_do_everything() -> None:
    assert not ANYBODY.is_limited
    assert not KnownClient("x").is_limited
    for role in (READ, WRITE, OPERATE):
        assert not ANYBODY.why_not("any", "method", role)


@pytest.mark.parametrize(
    ("client", "group", "method", "role", "reason"),
    [
        (SOME, "seats", "holder", READ, ""),
        (SOME, "seats", "book", WRITE, "has the role read in seats, and book needs write"),
        (SOME, "bank", "deposit", WRITE, ""),
        (SOME, "bank", "close", WRITE, "may call balance, deposit in bank, not close"),
        (SOME, "bank", "total", READ, "not total"),
        (SOME, "other", "x", READ, "may call nothing in other, not x"),
        (SOME, LOCATIONS, "find", READ, ""),
        (SOME, LOCATIONS, "register", WRITE, "has the role read"),
        (REST, "seats", "book", WRITE, ""),
        (REST, "bank", "deposit", WRITE, "has the role read in bank"),
        (REST, LOCATIONS, "register", WRITE, "has the role read"),
        (ANYBODY, LOCATIONS, "register", WRITE, ""),
    ],
)
def test_rights_are_for_groups_and_methods(
    client: KnownClient, group: str, method: str, role: str, reason: str
) -> None:
    said = client.why_not(group, method, role)
    assert bool(said) == bool(reason)
    assert reason in said


def test_who_has_no_rights_has_no_business() -> None:
    assert SOME.why_unwelcome("other") == "client 'some' may do nothing in group 'other'"
    assert not SOME.why_unwelcome("bank")
    assert not SOME.why_unwelcome(LOCATIONS)


def test_sessions_are_for_who_may_change_something() -> None:
    assert SOME.may_update("bank")
    assert not SOME.may_update("seats")
    assert REST.may_update("seats")


def test_a_certificate_says_who_a_client_is() -> None:
    clients = KnownClients(
        [
            KnownClient("some", certificate_name="client-some"),
            KnownClient("rest", secret=b"x" * 16, certificate_name="client-rest"),
        ]
    )
    assert [each.name for each in clients.find(certificate("client-some"))] == ["some"]
    assert [each.name for each in clients.find(certificate("x", "client-rest"))] == ["rest"]
    for names in (["replica-a"], ["client-someone"], [""]):
        with pytest.raises(HandshakeFailed, match="that is no client here"):
            clients.find(certificate(*names))
    assert [each.name for each in clients.find(None)] == ["rest"]


def test_a_bucket_gives_so_much_a_second_and_keeps_no_more() -> None:
    bucket = TokenBucket(10)
    assert [bucket.take(1, 5.0) for _ in range(11)] == [True] * 10 + [False]
    assert not bucket.take(1, 5.05)
    assert bucket.take(1, 5.2)
    assert sum(bucket.take(1, 1000.0) for _ in range(100)) == 10


def test_what_is_larger_than_the_bucket_is_owed() -> None:
    bucket = TokenBucket(10)
    assert bucket.take(50, 0.0)
    assert not bucket.take(1, 3.9)
    assert bucket.take(1, 4.2)


def test_a_small_rate_still_lets_something_through() -> None:
    bucket = TokenBucket(0.5)
    assert bucket.take(1, 0.0)
    assert not bucket.take(1, 1.0)
    assert bucket.take(1, 2.5)
