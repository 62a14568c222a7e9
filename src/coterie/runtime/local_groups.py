"""How a program finds the secret of a group that its own user serves on this machine.

A group that `coterie serve` runs asks for a secret, and keeps it where only its owner can read it.
So nobody else on the machine can call it, and whoever serves it need not know that there is one:
the group is found by an address of one of its replicas. It is looked for before anything is said
to that address: whoever may listen there while the group is down cannot pass for it.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.kernel.errors import CoterieError
from coterie.runtime.address import parse_address
from coterie.runtime.security import read_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONFIG = "group.toml"
_NUMBERS = ("127.", "::1")


def state_folder() -> Path:
    """Give the folder in which groups are found by their names."""
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if given else Path.home() / ".local" / "state"
    return base / "coterie"


def find_local_secret(addresses: Sequence[str]) -> bytes | None:
    """Give the secret of the group at one of these addresses, if this user serves it here.

    Raises `SecurityError` if it is there and cannot be used.
    """
    local = {address for text in addresses if (address := _local(text))}
    if not local:
        return None
    for config in _configs():
        try:
            taken = {_local(replica["clients"]) for replica in config["replicas"].values()}
            files = [client["secret_file"] for client in config["clients"].values()]
        except (KeyError, AttributeError, TypeError):
            continue  # whoever uses the group by its name is told what is wrong with the file
        if taken & local and files and isinstance(files[0], str):
            return read_secret(Path(files[0]))
    return None


def _configs() -> Iterator[dict[str, Any]]:
    """Give the configurations of all groups of this user."""
    try:
        folders = sorted(state_folder().iterdir())
    except OSError:
        return
    for folder in folders:
        try:
            yield tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            continue


def _local(text: object) -> str:
    """Give an address of this machine in one way of writing it; nothing if it is none."""
    try:
        host, port = parse_address(str(text))
    except CoterieError:
        return ""
    host = "127.0.0.1" if host == "localhost" else host
    return f"{host}:{port}" if host.startswith(_NUMBERS) else ""
