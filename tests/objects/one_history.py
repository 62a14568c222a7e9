"""A program: runs one history on a class full of sets, and prints the digests and the results.

With an argument it takes over the state in that file first, and writes its own there at the end.
"""

# ruff: noqa: T201 -- printing is what it is for

from __future__ import annotations

import sys
from pathlib import Path

from tests.objects.fake_engine import FakeGroup

from coterie.objects import Done, HostSettings, define, query, random, update


def later(tags: set[str]) -> set[str]:
    return tags


class Tags:
    """Everything whose order is nobody's business."""

    names: set[str]
    pages: dict[str, set[str]]
    pairs: dict[tuple[str, int], frozenset[bytes]]

    def __init__(self) -> None:
        self.names = set()
        self.pages = {}
        self.pairs = {}

    @update
    def tag(self, page: str, tags: set[str]) -> set[str]:
        self.names |= tags
        # The order of the dictionary now depends on the order of a set; the detour hides it from
        # what refuses classes.
        for tag in later(tags):
            self.pages.setdefault(tag, set()).add(page)
            self.pairs[tag, len(page)] = frozenset(name.encode() for name in tags)
        return self.names

    @update
    def lose_one(self) -> str:
        lost = random().choice(sorted(self.names))
        self.names.discard(lost)
        return lost

    @query
    def all(self) -> set[str]:
        return self.names


def main() -> None:
    group = FakeGroup(define(Tags), settings=HostSettings(digest_interval=5))
    session = group.open()
    store = Path(sys.argv[1]) if sys.argv[1:] else None
    if store is not None and store.exists():
        for replica in group.replicas.values():
            replica.host.restore([store.read_bytes()], 42)
        print(group["a"].host.digest()[1].hex())
        return
    for request in range(1, 42):
        if request % 4:
            tags = {f"tag {request * factor % 17}" for factor in range(1, 6)}
            outcome = group.call("a", session, request, "tag", f"page {request}", tags)
        else:
            outcome = group.call("b", session, request, "lose_one")
        assert isinstance(outcome, Done)
        print(outcome.result.hex())
    for position, digest in group["c"].digests.items():
        print(position, digest.hex())
    if store is not None:
        store.write_bytes(b"".join(group["a"].host.snapshot()))
    print(group["a"].host.digest()[1].hex())


if __name__ == "__main__":
    main()
