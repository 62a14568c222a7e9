"""Recorded histories of real systems, with known verdicts.

The checker is proved on these before it is trusted on ours. The files are not part of the
repository; the tests are skipped where they are absent.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coterie.checking.linearizability import (
    Append,
    Called,
    CompareAndSet,
    Get,
    KeyValue,
    Linearizable,
    Lost,
    NeverHappened,
    NotLinearizable,
    Put,
    ReadRegister,
    Register,
    Returned,
    WriteRegister,
    check,
    from_events,
)
from coterie.checking.linearizability.agenda import Agenda
from coterie.checking.linearizability.search import Limits, SearchExhausted, search

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from coterie.checking.linearizability import Event, Operation
    from coterie.checking.linearizability.models import KeyValueCommand, RegisterCommand

HISTORIES = Path(__file__).parents[2] / ".." / "shared" / "histories"
ETCD = HISTORIES / "etcd"
KV = HISTORIES / "kv"

pytestmark = pytest.mark.skipif(
    not HISTORIES.is_dir(), reason="the recorded histories are not on this machine"
)

ETCD_LINE = re.compile(r"INFO  jepsen\.util - (\d+)\t:(\w+)\t:(\w+)\t(.*)")
KV_LINE = re.compile(
    r'\{:process (\d+), :type :(\w+), :f :(\w+), :key "(.*?)", :value (?:nil|"(.*)")\}'
)


def etcd_verdicts() -> list[tuple[str, bool]]:
    if not ETCD.is_dir():
        return []
    with (ETCD / "verdicts.csv").open(encoding="utf-8") as file:
        return [(name, verdict == "true") for name, verdict in csv.reader(file)]


def etcd_command(function: str, value: str) -> RegisterCommand:
    match function:
        case "read":
            return ReadRegister()
        case "write":
            return WriteRegister(int(value))
        case "cas":
            expected, new = value.strip("[]").split()
            return CompareAndSet(int(expected), int(new))
    raise ValueError(function)


def etcd_result(function: str, value: str) -> int | bool | None:
    if function == "cas":
        return True
    return int(value) if function == "read" and value != "nil" else None


def etcd_events(
    path: Path, *, failed_cas_compared: bool
) -> Iterator[Event[RegisterCommand, Hashable]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        found = ETCD_LINE.fullmatch(line)
        assert found, line
        process, kind, function, value = found.groups()
        match kind:
            case "invoke":
                yield Called(process, etcd_command(function, value))
            case "ok":
                yield Returned(process, etcd_result(function, value))
            case "fail" if failed_cas_compared and function == "cas":
                yield Returned(process, result=False)
            case "fail":
                yield NeverHappened(process)
            case "info":
                yield Lost(process)
            case _:
                raise ValueError(line)


def etcd_history(
    name: str, *, failed_cas_compared: bool = True
) -> tuple[Operation[RegisterCommand, Hashable], ...]:
    return from_events(etcd_events(ETCD / name, failed_cas_compared=failed_cas_compared))


def kv_command(function: str, key: str, value: str) -> KeyValueCommand:
    match function:
        case "get":
            return Get(key)
        case "put":
            return Put(key, value)
        case "append":
            return Append(key, value)
    raise ValueError(function)


def kv_events(path: Path) -> Iterator[Event[KeyValueCommand, str | None]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        found = KV_LINE.fullmatch(line)
        assert found, line
        process, kind, function, key, value = found.groups()
        if kind == "invoke":
            yield Called(process, kv_command(function, key, value))
        else:
            assert kind == "ok", line
            yield Returned(process, value if function == "get" else None)


@pytest.mark.parametrize("failed_cas_compared", [True, False])
@pytest.mark.parametrize(("name", "is_linearizable"), etcd_verdicts())
def test_etcd(name: str, *, is_linearizable: bool, failed_cas_compared: bool) -> None:
    """The verdict is the same whether a failed compare-and-set saw another value or nothing."""
    history = etcd_history(name, failed_cas_compared=failed_cas_compared)
    expected = Linearizable if is_linearizable else NotLinearizable
    assert isinstance(check(history, Register()), expected)


def test_all_fifty_etcd_histories_are_there() -> None:
    assert len(etcd_verdicts()) == 50


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("c01-ok", Linearizable),
        ("c01-bad", NotLinearizable),
        ("c10-ok", Linearizable),
        ("c10-bad", NotLinearizable),
    ],
)
def test_kv(name: str, expected: type) -> None:
    history = from_events(kv_events(KV / f"{name}.txt"))
    assert isinstance(check(history, KeyValue()), expected)


def test_the_evidence_is_short_and_stands_alone() -> None:
    """No recorded failure needs more than four operations, and those have no order themselves."""
    for name, is_linearizable in etcd_verdicts():
        if is_linearizable:
            continue
        verdict = check(etcd_history(name), Register())
        assert isinstance(verdict, NotLinearizable)
        assert verdict.evidence.is_minimal, name
        assert len(verdict.evidence.core) <= 4, name
        alone = search(Register(), Agenda.of(verdict.evidence.core), Limits(1_000))
        assert isinstance(alone, SearchExhausted), name


def test_the_search_stays_cheap() -> None:
    """Lost operations are where a search explodes; these histories have up to a third of them."""
    for name, _ in etcd_verdicts():
        assert check(etcd_history(name), Register()).steps < 2_000, name


def test_an_explanation_as_it_is_read() -> None:
    verdict = check(etcd_history("etcd_001.log"), Register())
    assert str(verdict) == (
        "Not linearizable: the history (operations: 86).\n"
        "All that returned earlier (30) fit; read → 4 by 7 does not fit as well.\n"
        "These 2 contradict each other, whichever of the others (84) happened:\n"
        "\n"
        "  5  write 1   ├─┤\n"
        "  7  read → 4      ├─┤\n"
        "\n"
        "The order that gets furthest, from None:\n"
        "\n"
        "  5  write 1   leaves 1\n"
        "  7  read → 4  does not fit"
    )
