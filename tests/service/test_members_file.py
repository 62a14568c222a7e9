"""What becomes of the file of a served group when its members change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coterie.kernel.errors import Refused
from coterie.kernel.views import Configuration
from coterie.service.config import ConfigError, GroupConfig, encode_config, parse_config
from coterie.service.engines.family import Slot
from coterie.service.operate.founding import found, make_config, protect
from coterie.service.operate.members import put_up, take_down
from coterie.service.state_folder import read_config

if TYPE_CHECKING:
    from pathlib import Path

COUNTER = GroupConfig(class_="coterie.ready:Counter")


def test_a_newcomer_is_written_with_all_it_needs(tmp_path: Path) -> None:
    config = protect(tmp_path, make_config(tmp_path, "g", groups={"g": COUNTER}, replicas=3))
    found(tmp_path, config)
    config, id = put_up(tmp_path, config, "g")
    assert id == "d"
    assert read_config(tmp_path) == config
    assert config.members("g") == ("a", "b", "c")
    assert config.everyone("g") == ("a", "b", "c", "d")
    assert all(config.security.secret_between("d", other).exists() for other in "abc")
    # Founders begin with each other, whoever is written into the file later.
    assert Slot(config, "g", "a").configuration == Configuration(1, ("a", "b", "c"))
    assert Slot(config, "g", "d").configuration == Configuration(0, ("a", "b", "c"))
    for gone in "abc":
        config = take_down(tmp_path, config, "g", gone)
    assert (config.members("g"), config.everyone("g")) == ((), ("d",))
    assert put_up(tmp_path, config, "g")[1] == "e", "a has a folder here: ids are not used again"


def test_a_process_of_several_groups_leaves_one_of_them(tmp_path: Path) -> None:
    groups = {"g": COUNTER, "h": COUNTER}
    config = make_config(tmp_path, "both", groups=groups, replicas=2)
    found(tmp_path, config)
    config, id = put_up(tmp_path, config, "g")
    for gone in "ab":
        config = take_down(tmp_path, config, "g", gone)
    assert config.everyone("g") == (id,)
    assert config.everyone("h") == ("a", "b")
    assert Slot(config, "g", id).configuration.number == 0


def test_refusals_are_sentences(tmp_path: Path) -> None:
    config = make_config(tmp_path, "g", groups={"g": COUNTER}, replicas=2)
    found(tmp_path, config)
    for words, said in (
        (("g", "a"), "is here already"),
        (("h", ""), "there is no group 'h' here; there is g"),
        (("g", "../x"), "is no name for a replica"),
    ):
        with pytest.raises(Refused, match=said):
            put_up(tmp_path, config, *words)
    with pytest.raises(Refused, match="there is no replica 'z'"):
        take_down(tmp_path, config, "g", "z")
    text = encode_config(config)
    with pytest.raises(ConfigError, match="joins: there is no group 'x'"):
        parse_config(text + '\njoins = ["x"]\n', source="file")
