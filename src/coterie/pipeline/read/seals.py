"""What the seal key tells of journals: which parts nobody with the key has written.

That is found out in the process that was given the key, not in tasks of Spark: so it goes nowhere.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coterie.journal import FileDisk, Kind, list_journals
from coterie.journal.tampering import find_tampering

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.journal.keyed import SealKey


def tampering_in(roots: Sequence[str], key: SealKey) -> tuple[list[str], list[str]]:
    """Say what was tampered with, and what nothing proves, a sentence for each kind and journal."""
    tampered: list[str] = []
    unproven: list[str] = []
    for kind, sentence in _sentences(roots, key):
        (tampered if kind is Kind.TAMPERED else unproven).append(sentence)
    return tampered, unproven


def _sentences(roots: Sequence[str], key: SealKey) -> Iterator[tuple[Kind, str]]:
    for root in roots:
        disk = FileDisk(root)
        for group, replica in list_journals(disk):
            found = list(find_tampering(disk, group, replica, key))
            counts = Counter(finding.kind for finding in found)
            for finding in found:
                count = counts.pop(finding.kind, 0)
                if count:
                    more = f" ({count:,} such findings in all)" if count > 1 else ""
                    yield finding.kind, f"group {group}: {finding}{more}"
