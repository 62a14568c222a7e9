"""Groups are found by their names, wherever their folders are."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.journal.format import Sync
from coterie.kernel.errors import CoterieError
from coterie.service.config import GroupConfig
from coterie.service.operate.founding import make_config
from coterie.service.state_folder import (
    NoSuchGroup,
    find_group,
    group_names,
    place_group,
    read_config,
    state_folder,
    write_config,
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "coterie"


def found_in(folder: Path, name: str) -> None:
    config = make_config(
        folder,
        name,
        groups={name: GroupConfig(class_="m:C", stack="SAFE:DYNSEQ:PVSYNC", sync=Sync.NONE)},
        replicas=1,
    )
    write_config(folder, config)
    assert read_config(folder) == config


def test_the_state_folder_is_where_the_user_wants_it(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state_folder() == state
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder() == Path.home() / ".local" / "state" / "coterie"


def test_a_group_is_found_by_its_name(state: Path) -> None:
    assert group_names() == []
    folder = place_group("seats", None)
    assert folder == state / "seats"
    assert group_names() == []  # not founded yet
    found_in(folder, "seats")
    assert find_group("seats") == folder
    assert group_names() == ["seats"]
    assert place_group("seats", None) == folder


def test_a_group_in_another_folder_is_found_too(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    folder = place_group("seats", place)
    found_in(folder, "seats")
    assert find_group("seats") == place
    assert place_group("seats", place) == place
    assert place_group("seats", None) == place
    with pytest.raises(CoterieError, match=r"is in .*disk already: leave out --dir"):
        place_group("seats", tmp_path / "other")


def test_a_folder_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    found_in(place_group("seats", place), "seats")
    place.rename(tmp_path / "moved")
    with pytest.raises(NoSuchGroup, match=r"the folder of group 'seats', .*disk, is gone: put it"):
        find_group("seats")
    assert place_group("seats", tmp_path / "moved") == tmp_path / "moved"
    assert find_group("seats") == tmp_path / "moved"


def test_who_asks_for_an_unknown_group_hears_of_the_known_ones() -> None:
    with pytest.raises(NoSuchGroup, match=r"there is none yet .coterie serve starts one."):
        find_group("seats")
    found_in(place_group("meals", None), "meals")
    with pytest.raises(NoSuchGroup, match="no group 'seats' was served on this machine; there is"):
        find_group("seats")


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "x" * 65])
def test_a_name_cannot_leave_the_folder(name: str) -> None:
    with pytest.raises(CoterieError, match="is no name"):
        find_group(name)
    with pytest.raises(CoterieError, match="is no name"):
        place_group(name, None)


def test_a_place_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoterieError, match="cannot be used: Not a directory"):
        place_group("seats", tmp_path / "file" / "x")
