"""One-copy serializability: a search for circles in who must come before whom.

A history of committed transactions is serializable if there is an order of them in which every
read sees the last write before it. With the order of versions of every object known, that is so
if nobody has to come before itself: whoever wrote a version comes before who read it and before
who wrote the next one; who read a version comes before who wrote the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from coterie.checking.history import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


@dataclass(slots=True)
class CommittedTransaction:
    """What a transaction read and wrote: objects, each with the name of the version."""

    name: str
    reads: list[tuple[str, str | None]] = field(default_factory=list)
    """None is the version before the first write."""
    writes: list[tuple[str, str]] = field(default_factory=list)


def check_serializable(
    transactions: Iterable[CommittedTransaction], orders: Mapping[str, Sequence[str]]
) -> list[Violation]:
    """Look for a circle; *orders* gives the versions of each object, first to last."""
    transactions = list(transactions)
    graph = _Graph(transactions, orders)
    violations = [
        Violation(
            "serializable",
            f"{transaction.name} read {name} as of {version}, which nobody committed",
        )
        for transaction in transactions
        for name, version in transaction.reads
        if version is not None and (name, version) not in graph.writers
    ]
    circle = _circle(graph.edges)
    if circle:
        steps = "; ".join(
            f"{one} {graph.edges[one][other]} before {other}"
            for one, other in zip(circle, [*circle[1:], circle[0]], strict=True)
        )
        violations.append(Violation("serializable", f"a circle: {steps}"))
    return violations


class _Graph:
    """Who comes before whom, and why."""

    def __init__(
        self, transactions: list[CommittedTransaction], orders: Mapping[str, Sequence[str]]
    ) -> None:
        self.writers = {key: each.name for each in transactions for key in each.writes}
        self.edges: dict[str, dict[str, str]] = {each.name: {} for each in transactions}
        following: dict[tuple[str, str | None], str] = {}
        for name, versions in orders.items():
            if versions:
                following[name, None] = versions[0]
            for before, after in pairwise(versions):
                following[name, before] = after
                self._add((name, before), (name, after), f"wrote {name}")
        for transaction in transactions:
            for name, version in transaction.reads:
                if version is not None:
                    self._add((name, version), transaction.name, f"wrote {name}, was read")
                next_version = following.get((name, version))
                if next_version is not None:
                    self._add(transaction.name, (name, next_version), f"read {name}, overwritten")

    def _add(self, earlier: str | tuple[str, str], later: str | tuple[str, str], why: str) -> None:
        one = earlier if isinstance(earlier, str) else self.writers.get(earlier)
        other = later if isinstance(later, str) else self.writers.get(later)
        if one is not None and other is not None and one != other:
            self.edges[one].setdefault(other, why)


def _circle(edges: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Give the nodes of some circle, or nothing."""
    done: set[str] = set()
    for start in edges:
        path: list[str] = []
        on_path: dict[str, int] = {}
        ways: list[Iterator[str]] = []
        if start not in done:
            path.append(start)
            on_path[start] = 0
            ways.append(iter(edges[start]))
        while ways:
            step = next(ways[-1], None)
            if step is None:
                node = path.pop()
                del on_path[node]
                done.add(node)
                ways.pop()
            elif step in on_path:
                return path[on_path[step] :]
            elif step not in done:
                on_path[step] = len(path)
                path.append(step)
                ways.append(iter(edges[step]))
    return []
