"""The file of an agent: which host it is, where it listens, and where replicas are kept.

host = "h1"
listen = "10.0.0.1:7300"
dir = "/var/lib/coterie"
secret_file = "manager.secret"       # the same on all hosts, and where the manager is
labels = { zone = "a" }
ports = "20000-20999"                # for replicas; optional
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec

from coterie.kernel.errors import CoterieError
from coterie.manager.policy import NAME
from coterie.runtime.address import Address, parse_address

_PORTS_END = 1 << 16
_RANGE = re.compile("([0-9]{1,5})-([0-9]{1,5})")


LABELS_MAX = 64
Label = Annotated[str, msgspec.Meta(max_length=200)]


class AgentConfigError(CoterieError):
    """The file of an agent cannot be used; says why."""


class AgentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the file says."""

    host: str
    listen: str
    dir: str
    secret_file: str
    labels: Annotated[dict[Label, Label], msgspec.Meta(max_length=LABELS_MAX)] = {}
    ports: str = "20000-20999"
    """Which ports replicas get; each takes two."""
    owner_secret_file: str = ""
    """What clients of the groups show, as `[clients.owner]`; made from the secret if none is
    named."""

    @property
    def address(self) -> Address:
        """Where the agent listens; replicas listen at the same host."""
        return parse_address(self.listen)

    @property
    def port_range(self) -> range:
        """The ports for replicas."""
        found = _RANGE.fullmatch(self.ports)
        numbers = range(int(found[1]), int(found[2]) + 1) if found else range(0)
        if not numbers or not 0 < numbers[0] <= numbers[-1] < _PORTS_END:
            raise AgentConfigError(f"ports = {self.ports!r} is no range, as in 20000-20999")
        return numbers


def load_agent_config(path: Path) -> AgentConfig:
    """Read the file; raises `CoterieError` with a sentence."""
    try:
        config = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), AgentConfig)
    except OSError as error:
        raise AgentConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise AgentConfigError(f"{path} is not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        reason = str(error).encode("unicode_escape").decode()
        raise AgentConfigError(f"{path}: {reason}; $ is the file itself") from None
    if not NAME.fullmatch(config.host):
        raise AgentConfigError(f"{path}: {config.host!r} is no name for a host")
    _ = config.address, config.port_range
    base = path.resolve().parent
    owner = config.owner_secret_file
    return msgspec.structs.replace(
        config,
        dir=str((base / config.dir).absolute()),
        secret_file=str((base / config.secret_file).absolute()),
        owner_secret_file=str((base / owner).absolute()) if owner else "",
    )
