"""One range of the global order: what replicas marked green there, compared in columns.

A position has one action, whoever marked it. Beside that a range gives its rows of the history,
with the commands from wherever they were recorded, and hands on a summary for the checks that go
over all ranges: which stretches each life marked, and where each creator's actions begin and end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coterie.kernel.decoding import JsonDecoder
from coterie.kernel.engine import FINAL
from coterie.pipeline.engines.colours.told import View
from coterie.pipeline.lake.lake import folder_of, writer_of
from coterie.pipeline.lake.ranges import read_columns
from coterie.pipeline.read.schemas import HISTORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from coterie.pipeline.engines.colours.told import Name, ToldColours
    from coterie.pipeline.history.results import Place, Results
    from coterie.pipeline.lake.lake import Lake

    Numbers = NDArray[np.int64]

_COLUMNS = ("position", "fingerprint", "stamp", "sequence", "view", "number", "creator", "index")
_REPLIES = ("position", "stamp", "standing", "session", "request", "sequence")
_SHOWN = 100
LOSS = "an operator's word was given, after which less is promised"
SILENT = "journals are missing that may say more"


@dataclass(frozen=True, slots=True)
class GreenRange:
    """Consecutive positions of one group, and the files of all replicas that speak of them."""

    group: str
    number: int
    greens: tuple[str, ...]
    replies: tuple[str, ...]
    actions: tuple[str, ...]


def green_ranges(lake: Lake, group: str) -> list[GreenRange]:
    """Give all ranges of a group, in order."""
    actions = tuple(str(path) for path, _ in lake.files_of("actions", group))
    return [
        GreenRange(
            group, number, tuple(files.get("greens", ())), tuple(files.get("replies", ())), actions
        )
        for number, files in lake.ranges(group).items()
    ]


class Greens:
    """The green actions of one range, as all replicas marked them."""

    def __init__(self, task: GreenRange, found: ToldColours) -> None:
        self.task = task
        self.found = found
        tables = [read_columns(file, _COLUMNS) for file in task.greens]
        self.writers = [writer_of(file) for file in task.greens]
        sizes = [len(table) for table in tables]
        self.who = np.repeat(np.arange(len(tables)), sizes)
        """Whose row each is, by the place in `writers`."""
        self.table = pa.concat_tables(tables) if tables else None
        self.positions = self._column("position")
        self.prints = self._column("fingerprint")
        self.stamps = self._column("stamp")
        self.sequences = self._column("sequence")
        self.order = np.lexsort((self.prints, self.positions))

    def _column(self, name: str) -> Numbers:
        if self.table is None:
            return np.zeros(0, np.int64)
        values: Numbers = self.table[name].to_numpy()
        return values

    def place(self, row: int) -> Place:
        """Say where a row is from."""
        replica, incarnation = self.writers[int(self.who[row])]
        return replica, incarnation, int(self.sequences[row])

    @cached_property
    def components(self) -> Numbers:
        """The number of the component in which each was marked; 0 where none is on record."""
        if self.table is None:
            return np.zeros(0, np.int64)
        text, index = _codes(self.table["view"], ("number", "proposer", "incarnation"))
        numbers = np.array(
            [getattr(self.found.components.get(_view(each)), "index", 0) for each in text], np.int64
        )
        result: Numbers = numbers[index]
        return result

    @cached_property
    def names(self) -> list[Name]:
        """The names of the actions, row by row."""
        if self.table is None:
            return []
        creators = self.table["creator"].to_pylist()
        indices = self.table["index"].to_pylist()
        return [(c["id"], c["incarnation"], i) for c, i in zip(creators, indices, strict=True)]

    @cached_property
    def chosen(self) -> Numbers:
        """One row for each position: what most replicas have there, of the later component."""
        order, positions = self.order, self.positions
        if not len(order):
            return order
        starts = np.flatnonzero(np.diff(positions[order], prepend=-1))
        ends = np.append(starts[1:], len(order))
        prints = self.prints[order]
        is_one = prints[starts] == prints[ends - 1]
        picked = order[starts].copy()
        for place in np.flatnonzero(~is_one).tolist():
            rows = order[starts[place] : ends[place]]
            counted = {int(p): int((self.prints[rows] == p).sum()) for p in self.prints[rows]}
            picked[place] = max(
                rows.tolist(),
                key=lambda row: (self.components[row], counted[int(self.prints[row])], -row),
            )
        return picked

    @cached_property
    def first_components(self) -> Numbers:
        """For each chosen row, the number of the first component that ordered this position."""
        laid: dict[int, int] = {}
        wanted = {int(self.positions[row]): int(self.prints[row]) for row in self.chosen}
        for position, print_, component in zip(
            self.positions.tolist(), self.prints.tolist(), self.components.tolist(), strict=True
        ):
            if wanted[position] == print_ and component:
                laid[position] = min(laid.get(position, component), component)
        return np.array([laid.get(int(p), 0) for p in self.positions[self.chosen]], np.int64)


def _codes(column: pa.ChunkedArray, fields: tuple[str, ...]) -> tuple[list[str], Numbers]:
    """Give the different values of a column of structs as words, and which each row has."""
    parts = [pc.cast(pc.struct_field(column, each), pa.string()) for each in fields]
    joined = pc.binary_join_element_wise(*parts, "\n").combine_chunks().dictionary_encode()
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    index: Numbers = joined.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return joined.dictionary.to_pylist(), index


def _view(text: str) -> View:
    number, proposer, incarnation = text.split("\n")
    return int(number), proposer, int(incarnation)


# ---- checks


def check_order(greens: Greens, results: Results) -> None:
    """Run the checks that need one range only."""
    total_order(greens, results)
    yellow_rule(greens, results)
    told_right(greens, results)


def total_order(greens: Greens, results: Results) -> None:
    """No position has two actions."""
    check = "global total order"
    order, positions, prints = greens.order, greens.positions, greens.prints
    results.checked(check, len(order))
    is_same = np.diff(positions[order]) == 0
    for place in np.flatnonzero(is_same & (np.diff(prints[order]) != 0)).tolist():
        one, other = int(order[place]), int(order[place + 1])
        position = int(positions[one])
        if position > greens.found.given_up:
            results.undecided(check, 1, LOSS)
            continue
        results.violate(
            check,
            f"position {position} is {_named(greens.names[one])} at {greens.place(one)[0]}, and "
            f"{_named(greens.names[other])} at {greens.place(other)[0]}",
            position=position,
            rows=[greens.place(one), greens.place(other)],
        )


def yellow_rule(greens: Greens, results: Results) -> None:
    """What one member of a component made green in it, no other missed that left it alive."""
    check = "yellow rule"
    names = greens.names
    positions, components = greens.positions, greens.components
    for left in greens.found.left:
        index = greens.found.components[left.view].index
        beyond = np.flatnonzero((components == index) & (positions > left.position))
        results.checked(check, len(beyond))
        for row in beyond.tolist():
            offset = int(positions[row]) - left.position - 1
            if offset < len(left.yellow) and left.yellow[offset] == names[row]:
                continue
            if positions[row] > greens.found.given_up:
                results.undecided(check, 1, LOSS)
                continue
            results.violate(
                check,
                f"{_named(names[row])} became green at {positions[row]} in component {index}, and "
                f"{left.place[0]} left it without it",
                position=int(positions[row]),
                rows=[greens.place(row), left.place],
            )
            break


def told_right(greens: Greens, results: Results) -> None:
    """A final answer speaks of an action that is green at that place, and was so before."""
    check = "told right"
    known = set(zip(greens.positions.tolist(), greens.stamps.tolist(), strict=True))
    marked: dict[tuple[int, int], int] = {}
    for who, position, sequence in zip(
        greens.who.tolist(), greens.positions.tolist(), greens.sequences.tolist(), strict=True
    ):
        marked.setdefault((who, position), sequence)
    lives: dict[tuple[str, int], list[int]] = {}
    for number, writer in enumerate(greens.writers):
        lives.setdefault(writer, []).append(number)
    for file in greens.task.replies:
        writer = writer_of(file)
        table = read_columns(file, _REPLIES)
        final = np.flatnonzero(table["standing"].to_numpy() & FINAL != 0)
        results.checked(check, len(final))
        # Which answers go to one request is compared over all ranges (`check_answered`).
        results.checked("exactly once", len(final))
        mine = lives.get(writer, [])
        for row in table.take(pa.array(final)).to_pylist():
            position = row["position"]
            at = min((marked[w, position] for w in mine if (w, position) in marked), default=0)
            if (position, row["stamp"]) in known and at <= row["sequence"]:
                continue
            if position > greens.found.given_up:
                results.undecided(check, 1, LOSS)
            elif (greens.found.partial or greens.found.is_open) and at <= row["sequence"]:
                results.undecided(check, 1, SILENT)
            else:
                results.violate(
                    check,
                    f"{writer[0]} gave session {row['session']} a final answer to request "
                    f"{row['request']}, of position {position}, which was not green there",
                    position=position,
                    rows=[(*writer, row["sequence"])],
                )


def _named(name: Name) -> str:
    return f"{name[0]}.{name[1]}:{name[2]}"


# ---- what is handed on


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """What the checks over all ranges need of one: stretches of lives, and of creators."""

    stretches: list[tuple[str, int, int, int, int, int]]
    """Replica, incarnation, first sequence and position, last sequence and position."""
    creators: dict[str, tuple[int, int]]
    """The first and last index of each creator's actions in the order."""
    broken: list[tuple[str, int, int, int, int]]
    """Creator, its incarnation, an index, the one before it in the order, and the position."""
    rows: int
    first: int
    last: int
    """The numbers of the components that ordered the first position, and the last one."""
    falls: list[int]
    """Where an earlier component ordered what stands behind a later one."""


_decode_summary = JsonDecoder(Summary).decode


def summary_of(greens: Greens) -> Summary:
    """Give what the checks over all ranges need: stretches of lives, and of creators."""
    stretches: list[tuple[str, int, int, int, int, int]] = []
    for number, (replica, incarnation) in enumerate(greens.writers):
        rows = np.flatnonzero(greens.who == number)
        positions, sequences = greens.positions[rows], greens.sequences[rows]
        cuts = np.flatnonzero(np.diff(positions) != 1) + 1
        for part in np.split(np.arange(len(rows)), cuts):
            if len(part):
                first, last = part[0], part[-1]
                stretches.append(
                    (
                        *(replica, incarnation, int(sequences[first]), int(positions[first])),
                        *(int(sequences[last]), int(positions[last])),
                    )
                )
    creators: dict[str, tuple[int, int]] = {}
    broken: list[tuple[str, int, int, int, int]] = []
    for row in greens.chosen.tolist():
        id, incarnation, index = greens.names[row]
        key = f"{id}\n{incarnation}"
        first_index, end = creators.get(key, (index, index - 1))
        if index != end + 1:
            broken.append((id, incarnation, index, end, int(greens.positions[row])))
        creators[key] = (first_index, max(end, index))
    components = greens.first_components
    known = components[components > 0]
    falls = np.flatnonzero(np.diff(known) < 0)
    chosen = greens.chosen[components > 0]
    return Summary(
        stretches,
        creators,
        broken[:_SHOWN],
        len(greens.order),
        int(known[0]) if len(known) else 0,
        int(known[-1]) if len(known) else 0,
        [int(greens.positions[chosen[each + 1]]) for each in falls[:_SHOWN].tolist()],
    )


def summary_file(scratch: str, group: str, number: int) -> Path:
    """Give the place of what is handed on of a range."""
    return Path(scratch, "ranges", folder_of(group), f"{number:09}.json")


def hand_on(greens: Greens, scratch: str) -> None:
    """Write the summary of a range."""
    path = summary_file(scratch, greens.task.group, greens.task.number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(summary_of(greens)))


def summaries(scratch: str, group: str) -> Iterator[Summary]:
    """Give what all ranges of a group handed on, in order."""
    for path in sorted(summary_file(scratch, group, 0).parent.glob("*.json")):
        yield _decode_summary(path.read_bytes())


# ---- the history


def tabulate(greens: Greens) -> pa.Table:
    """Give the rows of the history of a range: what is green anywhere is authoritative."""
    chosen = greens.chosen
    if greens.table is None:
        return HISTORY.empty_table()
    rows = greens.table.take(pa.array(chosen))
    commands = _commands(greens)
    payloads = [commands.get(greens.names[row]) for row in chosen.tolist()]
    holders: dict[int, set[str]] = {}
    wanted = {int(greens.positions[row]): int(greens.prints[row]) for row in chosen.tolist()}
    for who, position, print_ in zip(
        greens.who.tolist(), greens.positions.tolist(), greens.prints.tolist(), strict=True
    ):
        if wanted[position] == print_:
            holders.setdefault(position, set()).add(greens.writers[who][0])
    held = [sorted(holders[position]) for position in wanted]
    size = len(chosen)
    nobody = pa.array([[]] * size, pa.list_(pa.string()))
    return pa.Table.from_arrays(
        [
            pa.repeat(pa.scalar(greens.task.group), size),
            rows["position"],
            rows["view"],
            rows["number"],
            rows["creator"],
            rows["index"],
            pa.array(payloads, pa.binary()),
            rows["stamp"],
            rows["fingerprint"],
            pa.array(["authoritative" if each is not None else "undecidable" for each in payloads]),
            pa.array(
                ["green" if each is not None else "no journal has its command" for each in payloads]
            ),
            pa.array(held, pa.list_(pa.string())),
            nobody,
            pa.array(held, pa.list_(pa.string())),
            nobody,
        ],
        schema=HISTORY,
    )


def _commands(greens: Greens) -> dict[Name, bytes]:
    """Find the commands of the chosen actions, wherever they were recorded."""
    wanted = {greens.names[row] for row in greens.chosen.tolist()}
    found: dict[Name, bytes] = {}
    if not wanted:
        return found
    # Indices rise along the order, so a range needs but a part of each file.
    least, most = min(each[2] for each in wanted), max(each[2] for each in wanted)
    within = (pc.field("index") >= least) & (pc.field("index") <= most)
    for file in greens.task.actions:
        table = pq.read_table(file, columns=["creator", "index", "payload"], filters=within)
        creators, indices = table["creator"].to_pylist(), table["index"].to_pylist()
        for row, (creator, index) in enumerate(zip(creators, indices, strict=True)):
            name = (creator["id"], creator["incarnation"], index)
            if name in wanted and name not in found:
                found[name] = table["payload"][row].as_py()
        if len(found) == len(wanted):
            break
    return found
