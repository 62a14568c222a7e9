"""Credentials in files: found by who owns them, refused where they are no good."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import pytest

from coterie.cli import exits
from coterie.cli.commands import secrets
from coterie.cli.commands.serve_preparing import prepare
from coterie.cli.errors import UsageError
from coterie.runtime.local_groups import find_local_secret
from coterie.runtime.security import SecurityError, read_secret
from coterie.service.config import ClusterConfig, GroupConfig, load_config
from coterie.service.operate.founding import found, make_config, protect
from coterie.service.security import find_credential, load_clients, load_security, write_secrets
from coterie.service.state_folder import CONFIG, place_group, read_config, write_config

CLASS = "coterie.ready:Counter"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "coterie"


def config_in(folder: Path) -> ClusterConfig:
    groups = {"hits": GroupConfig(class_=CLASS)}
    return make_config(folder, "hits", groups=groups, replicas=3)


def serve_options(**given: object) -> argparse.Namespace:
    nothing = dict.fromkeys(("name", "engine", "stack", "sync", "replicas", "dir"))
    return argparse.Namespace(**{"classes": [], **nothing, **given})


def test_each_pair_and_each_client_gets_a_secret_and_keeps_it(tmp_path: Path) -> None:
    config = protect(tmp_path, config_in(tmp_path))
    files = sorted(each.name for each in (tmp_path / "secrets").iterdir())
    assert files == ["a+b", "a+c", "b+c", "owner"]
    assert not write_secrets(config)
    assert protect(tmp_path, config) == config
    security = load_security(config, "a")
    assert security.secrets is not None
    assert sorted(security.secrets) == ["b", "c"]
    assert security.secrets["b"] == load_security(config, "b").secret_with("a")
    clients = load_clients(config, security)
    assert clients is not None
    assert clients["owner"].secret == find_credential(config).secret


def test_one_secret_in_two_files_is_refused(tmp_path: Path) -> None:
    config = protect(tmp_path, config_in(tmp_path))
    same = (tmp_path / "secrets" / "a+b").read_text()
    (tmp_path / "secrets" / "owner").write_text(same)
    with pytest.raises(SecurityError, match="the secret of client 'owner' is that of two replicas"):
        load_clients(config, load_security(config, "a"))
    (tmp_path / "secrets" / "a+c").write_text(same)
    with pytest.raises(SecurityError, match="hold the same secret"):
        load_security(config, "a")


def test_a_program_finds_the_secret_of_its_own_group(tmp_path: Path, state: Path) -> None:
    folder = place_group("hits", None)
    config = protect(folder, config_in(folder))
    found(folder, config)
    address = config.replicas["b"].clients
    secret = read_secret(state / "hits" / "secrets" / "owner")
    assert find_local_secret([address]) == secret
    assert find_local_secret(["10.0.0.1:1", address.replace("127.0.0.1", "localhost")]) == secret
    assert find_local_secret([config.replicas["b"].listen]) is None
    assert find_local_secret(["10.0.0.1:1"]) is None
    assert find_local_secret(["no address"]) is None
    (state / "broken").mkdir()
    (state / "broken" / CONFIG).write_text("replicas = 3\nclients = [[")
    (state / "empty").mkdir()
    (state / "empty" / CONFIG).write_text("replicas = 3\n")
    assert find_local_secret([address]) == secret
    (state / "hits" / "secrets" / "owner").chmod(0o644)
    with pytest.raises(SecurityError, match="chmod 600"):
        find_local_secret([address])
    del tmp_path


def test_a_group_of_an_earlier_release_is_protected_at_its_next_start() -> None:
    folder = place_group("hits", None)
    found(folder, config_in(folder))
    assert read_config(folder).security.is_open
    served = prepare(serve_options(name="hits"))
    assert not served.config.security.is_open
    assert read_config(folder) == served.config
    again = prepare(serve_options(name="hits"))
    assert again.config == served.config


def test_the_command_line_is_the_first_client_it_can_be(tmp_path: Path) -> None:
    config = protect(tmp_path, config_in(tmp_path))
    owner = config.clients["owner"]
    elsewhere = msgspec.structs.replace(owner, secret_file=str(tmp_path / "not here"))
    config = msgspec.structs.replace(config, clients={"far": elsewhere, "owner": owner})
    assert find_credential(config).client == "owner"
    with pytest.raises(SecurityError, match="not here cannot be read"):
        find_credential(config, "far")
    with pytest.raises(SecurityError, match=r"there is no client 'nobody' .* it has far, owner"):
        find_credential(config, "nobody")
    alone = msgspec.structs.replace(config, clients={"far": elsewhere})
    with pytest.raises(SecurityError, match="not here cannot be read"):
        find_credential(alone)


def test_secrets_are_written_by_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_in(tmp_path)
    write_config(tmp_path, config)
    with (tmp_path / CONFIG).open("a", encoding="utf-8") as file:
        file.write('[security]\nreplica_secrets = "keys"\n')
        file.write('[clients.booking]\nsecret_file = "keys/booking"\n')
    assert secrets.run(argparse.Namespace(config=tmp_path / CONFIG)) == exits.DONE
    written = {Path(line).name for line in capsys.readouterr().out.splitlines()}
    assert written == {"a+b", "a+c", "b+c", "booking"}
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    assert load_security(load_config(tmp_path / CONFIG), "c").secrets
    assert secrets.run(argparse.Namespace(config=tmp_path / CONFIG)) == exits.DONE
    assert "there already" in capsys.readouterr().out
    with pytest.raises(UsageError, match="cannot be read"):
        secrets.run(argparse.Namespace(config=tmp_path / "nowhere"))


def test_what_a_client_may_do_survives_being_written(tmp_path: Path) -> None:
    config = protect(tmp_path, config_in(tmp_path))
    limited = msgspec.structs.replace(
        config.clients["owner"], may={"hits": ("add", "total"), "*": "read"}, rate=2.5
    )
    config = msgspec.structs.replace(config, clients={"owner": limited})
    write_config(tmp_path, config)
    assert read_config(tmp_path) == config
