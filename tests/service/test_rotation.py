"""Secrets are replaced while the old ones are good for a while."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.runtime.test_security import SECRET, is_up, pair, until
from tests.service.test_secured import Counter, check_refused, make_config, write_files

from coterie.client.connecting import connect
from coterie.kernel.errors import CoterieError
from coterie.objects import define
from coterie.runtime.loop import run
from coterie.runtime.security import Security, SecurityError, read_secret, read_secrets
from coterie.service.process import ReplicaProcess
from coterie.service.security import SecretWatch, load_secrets, load_security

if TYPE_CHECKING:
    from coterie.service.config import ClusterConfig

NEW = b"another secret of some length"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Security(secrets={"b": SECRET}), Security(secrets={"a": SECRET}, older={"a": (NEW,)})),
        (
            Security(secrets={"b": SECRET}, older={"b": (NEW,)}),
            Security(secrets={"a": NEW}, older={"a": (SECRET,)}),
        ),
        (Security(secrets={"b": NEW}), Security(secrets={"a": NEW}, older={"a": (SECRET,)})),
        (Security(secrets={"b": NEW}, older={"b": (SECRET,)}), Security(secrets={"a": SECRET})),
    ],
)
def test_replicas_at_different_steps_are_peers(one: Security, other: Security) -> None:
    """Neighbouring steps, that is: the other end accepts what each shows."""

    async def story() -> None:
        async with pair(one, other) as (a, b):
            await until(is_up(a, b))

    run(story())


def rewrite(file: Path, *secrets: bytes) -> None:
    draft = file.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_bytes(b"\n".join(secrets) + b"\n")
    draft.rename(file)


def test_several_secrets_are_lines_of_one_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    rewrite(file, SECRET, NEW)
    assert read_secrets(file) == (SECRET, NEW)
    assert read_secret(file) == SECRET
    rewrite(file, SECRET, b"short")
    with pytest.raises(SecurityError, match="has 5 bytes"):
        read_secrets(file)
    rewrite(file, *(SECRET + b"%d" % number for number in range(5)))
    with pytest.raises(SecurityError, match="holds 5 secrets"):
        read_secrets(file)


def test_who_has_joined_under_the_name_of_another_file_has_no_secret(tmp_path: Path) -> None:
    """A history says who has joined; what it says is no path."""
    write_files(tmp_path)
    config = make_config(tmp_path, tls=False)
    rewrite(tmp_path / "secrets" / "a+x", NEW)
    # "a" and this name have their secret in the file above, if nobody looks.
    (tmp_path / "secrets" / "+").mkdir()
    for name in ("+/../a+x", "../secrets/a+x", "", "x\ny"):
        (secrets, _), missing = load_secrets(config, "a", [name])
        assert secrets is not None
        assert set(secrets) == {"b", "c"}
        assert "is no replica" in missing
    (secrets, _), _ = load_secrets(config, "a", ["x"])
    assert secrets is not None
    assert set(secrets) == {"b", "c", "x"}


def watches(config: ClusterConfig, processes: list[ReplicaProcess]) -> list[SecretWatch]:
    return [SecretWatch(config, each.id, each.live.transport, each.port) for each in processes]


def test_secrets_are_replaced_while_clients_and_replicas_go_on(tmp_path: Path) -> None:
    write_files(tmp_path)
    config = make_config(tmp_path, tls=False)
    theirs, ours = tmp_path / "secrets" / "tester", tmp_path / "secrets" / "a+b"

    async def story() -> None:
        async with AsyncExitStack() as stack:
            processes = []
            for id in "abc":
                process = ReplicaProcess(config, id, objects={"sums": define(Counter)}, found=True)
                processes.append(await stack.enter_async_context(process))
            address = str(config.replicas["a"].client_address)
            old, between = read_secret(theirs), read_secret(ours)
            looking = watches(config, processes)
            total = 0
            for step in range(3):
                rewrite(theirs, *((old, NEW), (NEW, old), (NEW,))[step])
                rewrite(ours, *((between, SECRET), (SECRET, between), (SECRET,))[step])
                for watch in looking:
                    watch.look()
                    assert watch.wrong == ""
                for secret in ((old, NEW), (old, NEW), (NEW,))[step]:
                    async with connect(Counter, address, secret=secret) as counter:
                        total += 1
                        assert await counter.add(1) == total
            await check_refused(address, old, None)
            assert load_security(config, "a").secrets == {
                "b": SECRET,
                "c": read_secret(tmp_path / "secrets" / "a+c"),
            }
            assert processes[0].live.transport.security.secrets == {
                "b": SECRET,
                "c": read_secret(tmp_path / "secrets" / "a+c"),
            }
            rewrite(theirs, b"short")
            looking[0].look()
            assert "has 5 bytes" in looking[0].wrong
            async with connect(Counter, address, secret=NEW) as counter:
                assert await counter.add(1) == total + 1

    run(story())


def test_who_was_let_in_by_a_secret_is_sent_away_when_it_is_taken_out(tmp_path: Path) -> None:
    """What was shown once was good for ever, on connections that stayed open."""
    write_files(tmp_path)
    config = make_config(tmp_path, tls=False)
    theirs, ours = tmp_path / "secrets" / "tester", tmp_path / "secrets" / "a+b"

    async def story() -> None:
        async with AsyncExitStack() as stack:
            processes = []
            for id in "abc":
                process = ReplicaProcess(config, id, objects={"sums": define(Counter)}, found=True)
                processes.append(await stack.enter_async_context(process))
            address = str(config.replicas["a"].client_address)
            old, between = read_secret(theirs), read_secret(ours)
            looking = watches(config, processes)
            counter = await stack.enter_async_context(connect(Counter, address, secret=old))
            assert await counter.add(1) == 1
            for secrets in ((old, NEW), (NEW, old)):
                rewrite(theirs, *secrets)
                rewrite(ours, between, SECRET)
                for watch in looking:
                    watch.look()
            assert await counter.add(1) == 2
            assert withdrawn(processes) == {}
            rewrite(theirs, NEW)
            rewrite(ours, SECRET)
            for watch in looking:
                watch.look()
            ended = withdrawn(processes)
            assert ended["port.callers_withdrawn"] >= 1
            assert ended["transport.connections_withdrawn"] >= 1
            with pytest.raises(CoterieError):
                await counter.add.options(deadline=2)(1)
            # Replicas find each other again, by the secret that is left.
            async with connect(Counter, address, secret=NEW) as again:
                assert await again.add(1) == 3
            a, b = (each.live.transport for each in processes[:2])
            await until(is_up(a, b))

    run(story())


def withdrawn(processes: list[ReplicaProcess]) -> dict[str, int]:
    found: dict[str, int] = {}
    for process in processes:
        for counters in (process.port.counters, process.live.transport.counters):
            for name, count in counters.items():
                if name.endswith("_withdrawn") and count:
                    found[name] = found.get(name, 0) + count
    return found
