"""The common case is a short cut: with it and without it a seed gives the same run, byte for byte.

Layers take the packet that comes next, where nothing is missing and nobody waits, by a shorter way
(`Multicast.is_next`, `DynamicSequencer.is_next`), and a straight way leads past most of what they
ask each other (`coterie.bypass`). The longer way is the definition. So the same seeds are run with
both: the same trace, which has the checksum of every frame in it, and the same
journals. Short cuts that forget a case are in `tests/broken/common_case_variants.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from coterie.bypass import Bypass
from coterie.cli.main import main
from coterie.membership.multicast import Multicast
from coterie.ordering.dynseq import DynamicSequencer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import msgspec

    from coterie.kernel.layers import Batch
    from coterie.kernel.views import Member

WITH_OBJECT = ("SAFE:DYNSEQ:PVSYNC", "DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC", "TOKEN:PVSYNC")
FIRST_SEED = 70_700_000


def run(
    capsys: pytest.CaptureFixture[str], folder: Path, stack: str, seed: int, seconds: int
) -> tuple[list[str], dict[str, bytes]]:
    """Run a seed; give its trace, and the journals by their names."""
    options = f"sim --stack {stack} --seed {seed} --duration {seconds} --trace --jobs 1"
    told = ["--object", "dictionary", "--journals", str(folder)]
    assert main([*options.split(), *told]) == 0
    trace = [
        line
        for line in capsys.readouterr().out.splitlines()
        if " a second" not in line and str(folder) not in line
    ]
    journals = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return trace, journals


def compare(
    capsys: pytest.CaptureFixture[str], folder: Path, stack: str, seed: int, seconds: int
) -> Counter[str]:
    """Run a seed in both ways and compare; give how often the short ways were taken."""
    taken: Counter[str] = Counter()
    is_next_packet, is_next_batch = Multicast.is_next, DynamicSequencer.is_next
    receive, finish_turn = Bypass.receive, Bypass.finish_turn

    def received(self: Bypass, sender: Member, messages: Sequence[msgspec.Raw]) -> bool:
        is_taken = receive(self, sender, messages)
        taken["envelopes"] += is_taken
        return is_taken

    def finished(self: Bypass) -> bool:
        is_taken = finish_turn(self)
        taken["turns"] += is_taken
        return is_taken

    def packet(self: Multicast, rank: int, number: int) -> bool:
        is_next = is_next_packet(self, rank, number)
        taken["packets"] += is_next
        return is_next

    def batch(self: DynamicSequencer, batch: Batch, order: object) -> bool:
        is_next = is_next_batch(self, batch, order)  # type: ignore[arg-type]
        taken["batches"] += is_next
        return is_next

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Multicast, "is_next", packet)
        patch.setattr(DynamicSequencer, "is_next", batch)
        patch.setattr(Bypass, "receive", received)
        patch.setattr(Bypass, "finish_turn", finished)
        short = run(capsys, folder / "short", stack, seed, seconds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Multicast, "is_next", lambda *_: False)
        patch.setattr(DynamicSequencer, "is_next", lambda *_: False)
        patch.setattr("coterie.stacks.bypass_of", lambda *_: None)
        long = run(capsys, folder / "long", stack, seed, seconds)
    assert short[0] == long[0], f"{stack} seed {seed}: the traces differ"
    assert short[1] == long[1], f"{stack} seed {seed}: the journals differ"
    assert len(short[0]) > 1000, "something happened"
    assert short[1], "and was written down"
    return taken


@pytest.mark.parametrize("stack", WITH_OBJECT)
def test_the_short_way_leads_to_the_same_place(
    stack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = compare(capsys, tmp_path, stack, FIRST_SEED, 4)
    assert taken["packets"] > 100
    if "DYNSEQ" in stack:
        assert taken["envelopes"] > 50
        assert taken["turns"] > 1000


@pytest.mark.long
@pytest.mark.parametrize("stack", WITH_OBJECT)
def test_many_seeds_go_the_same_way(
    stack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(FIRST_SEED + 1, FIRST_SEED + 3):
        compare(capsys, tmp_path / str(seed), stack, seed, 20)
