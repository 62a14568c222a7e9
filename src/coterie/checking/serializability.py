"""One-copy serializability: a search for circles in who must come before whom.

A history of committed transactions is serializable if there is an order of them in which every
read sees the last write before it. With the order of versions of every object known, that is so
if nobody has to come before itself: whoever wrote a version comes before who read it and before
who wrote the next one; who read a version comes before who wrote the next one.
"""

from __future__ import annotations

from collections import Counter
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
    """Look for a circle; *orders* gives the versions of each object, first to last.

    The verdict is worth as much as what it is made from. So each version that was read or has a
    place in an order must have been committed by somebody, and each that was committed must have
    one place; what does not fit is a violation by itself. Raises `ValueError` if two transactions
    have the same name, because then nobody can say whom a circle speaks of.
    """
    transactions = list(transactions)
    graph = _Graph(transactions, orders)
    violations = [*_unfit_orders(orders, graph), *_unfit_transactions(transactions, orders, graph)]
    circle = shortest_circle(graph.edges)
    if circle:
        steps = "; ".join(
            f"{one} {graph.edges[one][other]} before {other}"
            for one, other in zip(circle, [*circle[1:], circle[0]], strict=True)
        )
        violations.append(_violation(f"a circle: {steps}", *circle))
    return violations


def _unfit_orders(orders: Mapping[str, Sequence[str]], graph: _Graph) -> Iterator[Violation]:
    """Say where the orders have what is no version, or have one twice."""
    for name, versions in orders.items():
        for version, times in Counter(versions).items():
            if (name, version) not in graph.writers:
                yield _violation(f"the order of {name} has {version}, which nobody committed")
            if times > 1:
                yield _violation(f"the order of {name} has {version} {times} times")


def _unfit_transactions(
    transactions: list[CommittedTransaction], orders: Mapping[str, Sequence[str]], graph: _Graph
) -> Iterator[Violation]:
    """Say where transactions read what is no version, or wrote one without a place of its own."""
    placed = {(name, version) for name, versions in orders.items() for version in versions}
    for each in transactions:
        for name, read in each.reads:
            if read is not None and (name, read) not in graph.writers:
                evidence = f"{each.name} read {name} as of {read}, which nobody committed"
                yield _violation(evidence, each.name)
        for name, wrote in dict.fromkeys(each.writes):
            if (name, wrote) not in placed:
                evidence = f"{each.name} wrote {name} as of {wrote}, which has no place in its"
                yield _violation(f"{evidence} order", each.name)
            if (other := graph.writers[name, wrote]) != each.name:
                evidence = f"{each.name} and {other} both wrote {name} as of {wrote}"
                yield _violation(evidence, each.name, other)


def _violation(evidence: str, *about: str) -> Violation:
    return Violation("serializable", evidence, about)


class _Graph:
    """Who comes before whom, and why."""

    def __init__(
        self, transactions: list[CommittedTransaction], orders: Mapping[str, Sequence[str]]
    ) -> None:
        self.writers = {key: each.name for each in transactions for key in each.writes}
        self.edges: dict[str, dict[str, str]] = {}
        for each in transactions:
            if each.name in self.edges:
                raise ValueError(f"two transactions have the name {each.name}")
            self.edges[each.name] = {}
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


_STEPS_MAX = 1_000_000
"""How many nodes are looked at to find a shorter circle than the best so far."""


def shortest_circle(edges: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Give the nodes of a circle with the fewest of them, or nothing.

    In a large tangle of circles the search for a shorter one ends after a number of steps.
    """
    tangle = _without_ends(_turned(_without_ends(_turned(edges))))
    best: list[str] = []
    steps = 0
    for start in tangle:
        came_from: dict[str, str] = {}
        front, length = [start], 1
        while front and start not in came_from and (not best or length < len(best)):
            steps += len(front)
            if best and steps > _STEPS_MAX:
                return best
            reached = {other: node for node in front for other in tangle[node]}
            front = [node for node in reached if node not in came_from]
            came_from |= {node: reached[node] for node in front}
            length += 1
        if start in came_from:
            best = _way_round(came_from, start)
    return best


def _way_round(came_from: Mapping[str, str], start: str) -> list[str]:
    circle = [came_from[start]]
    while circle[-1] != start:
        circle.append(came_from[circle[-1]])
    return circle[::-1]


def _turned(edges: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Give the same nodes with every edge the other way round."""
    turned: dict[str, list[str]] = {node: [] for node in edges}
    for node, others in edges.items():
        for other in others:
            turned[other].append(node)
    return turned


def _without_ends(edges: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Leave out all nodes from which every way comes to an end: they are in no circle."""
    left = {node: set(others) for node, others in edges.items()}
    into = _turned(edges)
    ends = [node for node, others in left.items() if not others]
    while ends:
        end = ends.pop()
        del left[end]
        for node in into[end]:
            left[node].discard(end)
            if not left[node]:
                ends.append(node)
    return {node: [each for each in edges[node] if each in left] for node in left}
