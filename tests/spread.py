"""Which process runs which tests, and in what order: for `pytest -n 2 --dist loadgroup`.

Tests of one group, marked `xdist_group`, share something costly, such as a Spark session, and so a
process. pytest-xdist tells the group in the id of a test, and since pytest 9.2 nobody may change
that: the marks were passed over without a word, and each process started a Spark of its own. Here
the ids stay as they are, and each worker tells the groups in a file before it tells its ids.

The largest group begins, then what takes minutes, what takes seconds, and the rest, so that at
the end there is only small work left to share and no process waits long for another.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

GROUP = "xdist_group"
FIRST = ("long", "slow")
"""Marks of tests that begin before others, in this order."""
_FOLDER = "folder_of_groups"


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # without types
    """Hands out whole groups, the largest first; a test without a mark is a group of its own."""

    def __init__(self, config: pytest.Config, log: Producer, folder: Path) -> None:
        super().__init__(config, log)
        self._folder = folder
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        """Begin; all workers have told their tests."""
        for file in self._folder.iterdir():
            self._groups |= json.loads(file.read_text(encoding="utf-8"))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid, nodeid)


class Spreading:
    """The part of the main process."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        node.workerinput[_FOLDER] = self._folder.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(
        self, config: pytest.Config, log: Producer
    ) -> GroupScheduling | None:
        if config.getoption("dist") != "loadgroup":
            return None
        return GroupScheduling(config, log, Path(self._folder.name))

    def pytest_unconfigure(self) -> None:
        self._folder.cleanup()


class Telling:
    """The part of a worker."""

    def __init__(self, workerinput: dict[str, str]) -> None:
        self._file = Path(workerinput[_FOLDER], workerinput["workerid"])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=rank)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        marks = {item.nodeid: item.get_closest_marker(GROUP) for item in session.items}
        groups = {id: str(mark.args[0]) for id, mark in marks.items() if mark is not None}
        self._file.write_text(json.dumps(groups), encoding="utf-8")


def rank(item: pytest.Item) -> int:
    """Give the place of a test among all others: the longest first."""
    marks = [place for place, mark in enumerate(FIRST) if item.get_closest_marker(mark)]
    return min(marks, default=len(FIRST))
