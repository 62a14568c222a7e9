"""The class of a group is found by module or by file, or it is said why not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from coterie.objects import NotReplicable
from coterie.service.classes import ClassNotFound, load_class
from coterie.service.config import GroupConfig
from coterie.service.process import load_object

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEATS = """
from coterie import update

class Seats:
    taken: int = 0

    @update
    def book(self) -> int:
        self.taken += 1
        return self.taken

class Unborn:
    def __init__(self):
        1 / 0

class NotOne:
    @update
    def leave(self) -> None:
        self.file = open("x")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory, and nothing of it left in the interpreter afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_of_the_working_directory(here: Path) -> None:
    (here / "seats_module.py").write_text(SEATS)
    assert load_class("seats_module:Seats").name == "Seats"


def test_an_installed_module() -> None:
    assert load_class("coterie.ready:Counter").name == "Counter"


def test_a_file_wherever_it_is_and_what_lies_beside_it(here: Path) -> None:
    folder = here / "elsewhere"
    folder.mkdir()
    (folder / "beside_the_file.py").write_text("START = 3\n")
    (folder / "seats_file.py").write_text("import beside_the_file\n" + SEATS)
    definition = load_class("elsewhere/seats_file.py:Seats")
    assert definition.name == "Seats"
    assert load_class(f"{folder}/seats_file.py:Seats").cls is definition.cls


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("seats", "'seats' should say module:Class, for example airline.seats:Seats"),
        (":Seats", "':Seats' should say module:Class"),
        ("nowhere_at_all:Seats", "there is no module 'nowhere_at_all', neither in"),
        ("nowhere_at_all.deep:Seats", "there is no module 'nowhere_at_all.deep', neither in"),
        ("nowhere.py:Seats", "there is no file "),
        ("good.py:Saets", "the file 'good.py' has no class 'Saets'; it has Seats, Unborn, NotOne"),
        ("good:Saets", "the module 'good' has no class 'Saets'; it has Seats, Unborn, NotOne"),
        ("broken:Seats", "the module 'broken' cannot be imported: ZeroDivisionError"),
        ("broken.py:Seats", "broken.py cannot be imported: ZeroDivisionError"),
        ("wanting:Seats", "the module 'wanting' cannot be imported: No module named"),
        ("good.py:Unborn", "no Unborn can be made: its __init__ raises ZeroDivisionError"),
        ("json.py:Seats", "because another module is called 'json': rename the file"),
    ],
)
def test_why_a_class_cannot_be_loaded(here: Path, where: str, sentence: str) -> None:
    (here / "good.py").write_text(SEATS)
    (here / "broken.py").write_text("1 / 0")
    (here / "wanting.py").write_text("import not_installed_anywhere")
    (here / "json.py").write_text(SEATS)
    with pytest.raises(ClassNotFound) as refusal:
        load_class(where)
    assert sentence in str(refusal.value)


def test_a_class_that_cannot_be_replicated_is_refused_with_the_reason(here: Path) -> None:
    (here / "seats_refused.py").write_text(SEATS)
    with pytest.raises(NotReplicable, match="open"):
        load_class("seats_refused.py:NotOne")


@pytest.mark.parametrize("name", ["Counter", "Sequence", "Set"])
def test_ready_made_objects_without_a_clock_run_under_vsr(name: str) -> None:
    group = GroupConfig(class_=f"coterie.ready:{name}", engine="vsr")
    assert load_object(group).name == name


@pytest.mark.parametrize("name", ["Dictionary", "Election", "Locks", "Queue", "RateLimiter"])
def test_those_with_a_clock_are_refused_under_vsr(name: str) -> None:
    group = GroupConfig(class_=f"coterie.ready:{name}", engine="vsr")
    with pytest.raises(NotReplicable, match=f"{name} has on_tick, and nothing ticks"):
        load_object(group)
