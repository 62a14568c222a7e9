"""What answers may claim: each engine has words of its own, and all agree on what is final."""

from __future__ import annotations

import msgspec
import pytest

from coterie.kernel.engine import FINAL, Standing
from coterie.kernel.records import Reply
from coterie.kernel.views import NO_VIEW
from coterie.vsr.standings import COMMITTED

_reply = msgspec.msgpack.Decoder(Reply)


def replied(standing: Standing) -> Reply:
    return Reply(1, 2, 3, NO_VIEW, 3, standing, 0, 0)


def test_the_standings_of_a_history() -> None:
    finals = {standing: standing.is_final for standing in Standing}
    assert finals == {
        Standing.NON_PRIMARY: False,
        Standing.OPTIMISTIC: False,
        Standing.AUTHORITATIVE: True,
    }


def test_the_code_says_whether_it_is_final() -> None:
    assert COMMITTED.is_final
    assert [code for code in range(8, 12) if code & FINAL] == [10, 11]


@pytest.mark.parametrize("standing", [*Standing, COMMITTED])
def test_a_standing_comes_back_from_a_journal(standing: Standing) -> None:
    written = msgspec.msgpack.encode(replied(standing))
    assert _reply.decode(written).standing is standing


def test_a_code_that_nobody_declared_still_says_whether_it_is_final() -> None:
    fields = msgspec.to_builtins(replied(COMMITTED))
    for code, is_final in ((100, False), (103, True)):
        fields[5] = code
        read = _reply.decode(msgspec.msgpack.encode(fields)).standing
        assert (int(read), read.is_final, read.name) == (code, is_final, f"STANDING_{code}")
        assert Standing(code) is read


def test_a_code_belongs_to_one_engine() -> None:
    assert Standing.declare("COMMITTED", 10) is COMMITTED
    with pytest.raises(ValueError, match="10 is the standing COMMITTED already"):
        Standing.declare("GREEN", 10)
    with pytest.raises(ValueError, match="256"):
        Standing(256)
