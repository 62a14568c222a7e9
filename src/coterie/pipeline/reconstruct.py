"""The one history of a group, rebuilt from the journals of all its replicas.

**objects** 5.2 dumps the states of replicas and compares them off line to find the authoritative
one. Here the journals are compared, entry by entry (`coterie.pipeline.judging`); states follow
from the history by replay (`coterie.pipeline.replay`), and comparing dumps alone remains possible
(`coterie.pipeline.dumps`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from coterie.pipeline.judging import Judgement, Standing, judge
from coterie.pipeline.ranges import EntryFiles, Range, ranges_of
from coterie.pipeline.schemas import HISTORY
from coterie.pipeline.tasks import for_each
from coterie.pipeline.witnesses import testimonies_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from coterie.pipeline.lake import Lake
    from coterie.pipeline.witnesses import Testimony

_FROM_ENTRIES = ("view", "number", "origin", "identity", "payload", "stamp")
_ROWS = 1 << 16


def history(
    spark: SparkSession, lake: Lake, testimonies: Mapping[str, Testimony] | None = None
) -> DataFrame:
    """Give every entry of every group once, with its standing and the evidence, by position."""
    known = testimonies_of(lake) if testimonies is None else testimonies

    def work(task: Range) -> Iterator[pa.RecordBatch]:
        yield from history_of_range(task, known[task.group])

    return for_each(spark, ranges_of(lake, known), work, HISTORY)


def history_of_range(task: Range, testimony: Testimony) -> Iterator[pa.RecordBatch]:
    """Rebuild the history of one range."""
    files = EntryFiles(task.entries, testimony)
    judgement = judge(files.rows, testimony, task.start, task.width)
    yield from tabulate(judgement, files, testimony)


def tabulate(
    judgement: Judgement, files: EntryFiles, testimony: Testimony
) -> Iterator[pa.RecordBatch]:
    """Give a judgement as rows of the history."""
    size = len(judgement.positions)
    content = files.take(judgement.rows, _FROM_ENTRIES)
    words = pa.array([standing.word for standing in Standing], pa.string())
    columns = {
        "group": pa.repeat(pa.scalar(testimony.group), size),
        "position": pa.array(judgement.positions),
        **{name: content[name] for name in _FROM_ENTRIES},
        "fingerprint": pa.array(judgement.fingerprints),
        "standing": words.take(pa.array(judgement.standings)),
        "evidence": _evidence(judgement),
        "accepted_by": _names(judgement.holders, testimony),
        "transferred_to": _names(judgement.implicit, testimony),
        "settled_by": _names(judgement.claims, testimony),
        "given_up_by": _names(judgement.given_up, testimony),
    }
    table = pa.table([columns[field.name] for field in HISTORY], schema=HISTORY)
    yield from table.to_batches(max_chunksize=_ROWS)


def _evidence(judgement: Judgement) -> pa.Array:
    """Say in a word how the standing is known."""
    words = pa.array(["a majority accepted it", "the word of those who settled it", ""])
    is_authoritative = judgement.standings == Standing.AUTHORITATIVE
    index = np.where(is_authoritative, judgement.is_by_word.astype(np.int8), np.int8(2))
    return words.take(pa.array(index))


def _names(bits: NDArray[np.uint64], testimony: Testimony) -> pa.Array:
    """Give sets of replicas by their names; there are few different ones."""
    different, index = np.unique(bits, return_inverse=True)
    names = [testimony.names_of(int(each)) for each in different]
    return pa.array(names, pa.list_(pa.string())).take(pa.array(index))
