"""What calls are made in is chosen by the family of engines that a replica names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.client.fakes import FakeReplica, serving
from tests.service.groups import Counter

from coterie.client import NotWelcome, connect
from coterie.client.sessions import FAMILIES
from coterie.client.sessions.stack import ClientSession
from coterie.protocol.messages import Welcome

if TYPE_CHECKING:
    from coterie.protocol.messages import FromReplica, Hello


class _OfEngine(FakeReplica):
    """Says that its group runs under some engine."""

    engine = ""

    def hello(self, hello: Hello) -> FromReplica:
        welcome = super().hello(hello)
        assert isinstance(welcome, Welcome)
        return msgspec.structs.replace(welcome, engine=self.engine)


def greeted_by(engine: str) -> None:
    async def story() -> None:
        replica = _OfEngine()
        replica.engine = engine
        async with (
            serving(replica),
            asyncio.timeout(5),
            connect(Counter, replica.address) as counter,
        ):
            assert await counter.add(1) == 1

    asyncio.run(story())


@pytest.mark.parametrize("engine", ["", "stack"])
def test_a_group_that_names_no_engine_is_ordered_by_a_stack(engine: str) -> None:
    greeted_by(engine)


def test_an_engine_of_a_later_release_is_named_to_the_user() -> None:
    with pytest.raises(NotWelcome, match=r"runs under 'llft', which this release does not know"):
        greeted_by("llft")


def test_a_family_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "toy", ClientSession.__module__)
    greeted_by("toy")
