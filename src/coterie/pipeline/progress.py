"""How far results follow the journals: told by `coterie pipeline status`, and to Prometheus.

After each batch, `follow` writes beside its results how far it had read every journal as the batch
began, and what came of it (`progress.json`); and the same as figures (`progress.prom`), in the text
that a node exporter collects from a folder. How far results are behind *now* is found by looking at
the journals again, which needs no Spark and only the last segment of each.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.journal import FileDisk, Offset
from coterie.kernel.decoding import JsonDecoder
from coterie.kernel.errors import CoterieError
from coterie.pipeline.lake.lake import draft_of
from coterie.pipeline.read.growth import bytes_between, place_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.pipeline.jobs import JobOutcome
    from coterie.pipeline.read.growth import Place

NAME = "progress.json"
FIGURES = "progress.prom"


class NoProgress(CoterieError):
    """Nobody has followed journals into a folder."""


class FollowedBatch(msgspec.Struct, frozen=True):
    """What a batch came to."""

    roots: list[str]
    place: dict[str, tuple[int, int, int, int]]
    """How far each journal could be read as the batch began."""
    number: int
    """How many batches there were since `follow` was started."""
    began: float
    ended: float
    """In seconds since 1970."""
    read_bytes: int
    """How much of the journals was new."""
    segments: int
    outcome: str


class Lag(msgspec.Struct, frozen=True):
    """How far results are behind the journals."""

    behind_bytes: dict[str, int]
    """What is not in the results yet, by group."""
    behind_seconds: float
    """How old results are at most, if anything is not in them; else 0."""

    @property
    def total(self) -> int:
        """What is not in the results yet, of all groups."""
        return sum(self.behind_bytes.values())


_decode = JsonDecoder(FollowedBatch).decode


class Follower:
    """Notes each batch of one `follow`."""

    def __init__(self, out: Path, roots: Sequence[str]) -> None:
        self._out = out
        self._roots = list(roots)
        try:
            self._place = _place(read_batch(out))
        except NoProgress:
            self._place = {}
        self._number = 0
        self._began = 0.0
        self._read = 0

    def begin(self) -> None:
        """Learn that a batch begins: what is there now will be in its results."""
        self._began = time.time()
        place = place_now(self._roots, self._place)
        self._read = sum(_behind(self._place, place).values())
        self._place = place

    def end(self, outcome: JobOutcome) -> Lag:
        """Learn what came of the batch, and note it; give what has come in meanwhile."""
        self._number += 1
        batch = FollowedBatch(
            roots=self._roots,
            place={key: tuple(offset) for key, offset in self._place.items()},  # type: ignore[misc]
            number=self._number,
            began=self._began,
            ended=time.time(),
            read_bytes=self._read,
            segments=outcome.segments,
            outcome=str(outcome.outcome),
        )
        lag = lag_of(batch)
        _write(self._out / NAME, msgspec.json.encode(batch))
        _write(self._out / FIGURES, _figures(batch, lag).encode())
        return lag


def read_batch(out: Path) -> FollowedBatch:
    """Give the last batch that was noted."""
    try:
        return _decode((out / NAME).read_bytes())
    except (OSError, msgspec.DecodeError):
        raise NoProgress(f"nobody follows journals into {out}: coterie pipeline follow") from None


def lag_of(batch: FollowedBatch) -> Lag:
    """Look at the journals, and say how far the results of a batch are behind them now."""
    behind = _behind(_place(batch), place_now(batch.roots, _place(batch)))
    is_behind = any(behind.values())
    return Lag(behind, max(0.0, time.time() - batch.began) if is_behind else 0.0)


def _behind(start: Place, end: Place) -> dict[str, int]:
    """Say how much lies between two places, by group."""
    behind: dict[str, int] = {}
    for key, until in end.items():
        root, group, replica = key.split("\t")
        disk = FileDisk(root)
        found = bytes_between(disk, group, replica, start.get(key, Offset()), until)
        behind[group] = behind.get(group, 0) + found
    return behind


def _place(batch: FollowedBatch) -> Place:
    return {key: Offset(*offset) for key, offset in batch.place.items()}


def _figures(batch: FollowedBatch, lag: Lag) -> str:
    """Give the figures of a batch as Prometheus reads them."""
    about = {
        "batch_seconds": ("How long the last batch took", batch.ended - batch.began),
        "batch_ended_seconds": ("When the last batch ended", batch.ended),
        "batches": ("Batches since the start", batch.number),
        "batch_read_bytes": ("What was new of the journals in the last batch", batch.read_bytes),
        "batch_segments": ("Segments that the last batch sealed", batch.segments),
        "is_broken": ("Whether a promise was broken", int(batch.outcome == "broken")),
        "is_damaged": ("Whether journals are damaged", int(batch.outcome == "damaged")),
    }
    lines: list[str] = []
    for name, (told, value) in about.items():
        lines += [
            f"# HELP coterie_pipeline_{name} {told}.",
            f"# TYPE coterie_pipeline_{name} gauge",
            f"coterie_pipeline_{name} {value}",
        ]
    name = "coterie_pipeline_behind_bytes"
    lines += [
        f"# HELP {name} What came in while the last batch ran.",
        f"# TYPE {name} gauge",
        *(
            f'{name}{{group="{_quoted(group)}"}} {value}'
            for group, value in lag.behind_bytes.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _write(path: Path, content: bytes) -> None:
    draft = draft_of(path)
    draft.write_bytes(content)
    draft.replace(path)
