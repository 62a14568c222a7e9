"""What the journal knows of each engine family, by the name that all sides of the platform use.

A family is added with `register`; nothing else in the journal has to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.engines.colours import COLOURS
from coterie.journal.engines.llft import LLFT
from coterie.journal.engines.stack import STACK
from coterie.journal.engines.vsr import VSR
from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.journal.facts import Facts, Memory
    from coterie.journal.family import JournalFamily
    from coterie.kernel.records import Record

FAMILIES: dict[str, JournalFamily] = {family.name: family for family in (STACK, VSR, COLOURS, LLFT)}


def register(family: JournalFamily) -> None:
    """Add a family, in place of one that has its name."""
    FAMILIES[family.name] = family


def journal_family(name: str) -> JournalFamily:
    """Give the family of this name."""
    try:
        return FAMILIES[name]
    except KeyError:
        known = ", ".join(sorted(FAMILIES))
        raise CoterieError(
            f"no engine family {name!r} keeps a journal; there are {known}"
        ) from None


def memory_for(facts: Facts, records: Iterable[Record]) -> Memory | None:
    """Give the memory of the family that wrote *records*, for readers that are not told which.

    None if nothing among them is of one family alone; a memory would learn nothing from them.
    """
    kinds = {type(record) for record in records}
    for family in FAMILIES.values():
        if not family.kinds.isdisjoint(kinds):
            return family.memory(facts)
    return None
