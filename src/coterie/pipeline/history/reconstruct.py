"""The one history of a group, rebuilt from the journals of all its replicas.

**objects** 5.2 dumps the states of replicas and compares them off line to find the authoritative
one. Here the journals are compared, entry by entry (`coterie.pipeline.history.judging`); states
follow from the history by replay (`coterie.pipeline.history.replay`), and comparing dumps alone
remains possible (`coterie.pipeline.history.dumps`).

The table is one file for each group and range, in folders that say which.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline.history.judging import EntryStanding, Judgement
from coterie.pipeline.history.range_checks import CONTENT
from coterie.pipeline.lake.lake import codec_for, draft_of, folder_of
from coterie.pipeline.read.schemas import GROUP, HISTORY, stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from coterie.pipeline.history.range_checks import RangeFacts
    from coterie.pipeline.history.witnesses import Testimony
    from coterie.pipeline.lake.ranges import Range

FILE = "part.parquet"
"""The one file of a group, or of a range of it, in a table of results."""
_PLAIN = ("payload", "stamp", "fingerprint", "position", "number", "identity")
"""Columns with many different values: dictionaries for them only cost time."""


def history_file(folder: str, task: Range) -> str:
    """Give the place of the rows of one range."""
    return f"{folder}/{folder_of(task.group, task.number)}/{FILE}"


def write_history(facts: RangeFacts, path: str, metadata: Mapping[bytes, bytes]) -> None:
    """Write the history of one range."""
    write_file(tabulate(facts), path, plain=_PLAIN, metadata=metadata)


def write_file(
    table: pa.Table,
    path: str,
    *,
    plain: tuple[str, ...] = (),
    metadata: Mapping[bytes, bytes] | None = None,
) -> None:
    """Write a table so that there is all of it or nothing, however often a task is repeated."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if f"/{GROUP}=" in path:
        table = table.select(stored(table.schema).names)
    draft = draft_of(target)
    dictionaries: list[str] | bool = [
        f"{field.name}{suffix}"
        for field in table.schema
        if field.name not in plain
        for suffix in _parts(field.type)
    ]
    if metadata:
        table = table.replace_schema_metadata(dict(metadata))
    pq.write_table(table, draft, compression=codec_for(table), use_dictionary=dictionaries)
    draft.replace(target)


def write_handed_on(table: pa.Table, path: str) -> None:
    """Write what one round hands on to the next: it is read once, and soon, so it is as it is."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(target)
    pq.write_table(table, draft, compression="none", use_dictionary=False, write_statistics=False)
    draft.replace(target)


def _parts(kind: pa.DataType) -> list[str]:
    """Give how the columns of a field go on in a file."""
    if pa.types.is_struct(kind):
        return [f".{part.name}" for part in kind]
    return [".list.element"] if pa.types.is_list(kind) else [""]


def tabulate(facts: RangeFacts) -> pa.Table:
    """Give a judged range as rows of the history."""
    judgement, testimony = facts.judgement, facts.testimony
    content = facts.entries()
    words = pa.array([standing.word for standing in EntryStanding], pa.string())
    columns = {
        "group_name": pa.repeat(pa.scalar(testimony.group), len(judgement.positions)),
        "position": pa.array(judgement.positions),
        **{name: content[name] for name in CONTENT},
        "fingerprint": pa.array(judgement.fingerprints),
        "standing": words.take(pa.array(judgement.standings)),
        "evidence": _evidence(judgement),
        "accepted_by": _names(judgement.holders, testimony),
        "transferred_to": _names(judgement.implicit, testimony),
        "settled_by": _names(judgement.claims, testimony),
        "given_up_by": _names(judgement.given_up, testimony),
    }
    return pa.table([columns[field.name] for field in HISTORY], schema=HISTORY)


def _evidence(judgement: Judgement) -> pa.Array:
    """Say in a word how the standing is known."""
    words = pa.array(["a majority accepted it", "the word of those who settled it", ""])
    is_authoritative = judgement.standings == EntryStanding.AUTHORITATIVE
    index = np.where(is_authoritative, judgement.is_by_word.astype(np.int8), np.int8(2))
    return words.take(pa.array(index))


def _names(bits: NDArray[np.uint64], testimony: Testimony) -> pa.Array:
    """Give sets of replicas by their names; there are few different ones."""
    different, index = np.unique(bits, return_inverse=True)
    names = [testimony.names_of(int(each)) for each in different]
    return pa.array(names, pa.list_(pa.string())).take(pa.array(index))
