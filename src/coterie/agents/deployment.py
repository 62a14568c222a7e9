"""Where the processes of a replicated program are, and what they run: one file for all of them.

The file is JSON with one object, and read by agents, gateway and supervisor alike. It holds what
has to be the same in all replicas: the command, the environment, where it is run, and when the
group was founded.
"""

from __future__ import annotations

import hmac
import os
import ssl
from typing import TYPE_CHECKING

import msgspec

from coterie.journal.format import Sync
from coterie.kernel.claims import Roster, RosterLine
from coterie.kernel.clock import seconds
from coterie.kernel.decoding import JsonDecoder
from coterie.kernel.errors import CoterieError
from coterie.kernel.views import Configuration, Member
from coterie.llft.settings import Guard, LlftSettings
from coterie.program.command_words import ProgramCommand
from coterie.program.wire import WINDOW
from coterie.runtime.address import parse_address
from coterie.runtime.local_groups import state_folder
from coterie.runtime.security import FOR_OTHERS, OPEN, SECRET_BYTES_MIN, Security
from coterie.service.config import NAME, is_loopback

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.runtime.address import Address

EDGE_ID = "edge"
FILE = "program.json"
_NEVER = 1 << 62


class BadDeployment(CoterieError):
    """This is no file of a replicated program; the message says what to do."""


class MemberPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a process of the group is."""

    listen: str
    """HOST:PORT for the other processes of the group."""
    dir: str
    """Its journal."""


class EdgeCertificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PEM files, read when the edge starts."""

    cert: str
    key: str

    def context(self) -> ssl.SSLContext:
        """Give what a server needs; raises `BadDeployment`."""
        found = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            found.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            why = error.strerror or error
            raise BadDeployment(
                f"{self.cert} and {self.key} are no certificate and its key: {why}"
            ) from None
        return found


class ProgramDeployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replicated program."""

    name: str
    interpreter: str
    options: list[str]
    words: list[str]
    """A script, `-m MODULE` or `-c CODE`, and its arguments."""
    folder: str
    """Where the program is run."""
    environment: dict[str, str]
    founded: int
    """Nanoseconds since the epoch: the beginning of the group's clock."""
    edge: MemberPlace
    replicas: dict[str, MemberPlace]
    guard: Guard = Guard.QUORUM
    allow_connect: list[str] = []
    """HOST:PORT: where the edge may connect to for the program."""
    secret: str = ""
    """What only the processes of the group know; without it every user of the machine can pass for
    one of them, so `coterie program run` writes one."""
    copy_bytes: int = 0
    """After so many bytes of orders a copy of the program is made, and the log before it goes from
    memory; 0 for never. Copies are processes: who joins on another machine cannot use them."""
    journal_bytes_max: int = 8 << 30
    """Behind a copy the oldest part of a replica's journal goes while it is longer; the edge keeps
    all of its own."""
    tls: EdgeCertificate | None = None
    """With these the edge speaks TLS to clients, at every port; the program sees plain text."""
    sync: Sync = Sync.NONE
    """Whether journals outlive the loss of a machine's memory (turn), or of processes (none)."""

    @property
    def command(self) -> ProgramCommand:
        """The program, as it is started."""
        return ProgramCommand(self.interpreter, self.options, self.words)

    @property
    def configuration(self) -> Configuration:
        """The replicas."""
        return Configuration(1, tuple(self.replicas))

    @property
    def roster(self) -> Roster:
        """Who founds the group: the first life of each replica."""
        lives = tuple(
            RosterLine(Member(id, 1), rank, is_whole=True)
            for rank, id in enumerate(self.replicas, 1)
        )
        return Roster(lives, len(lives) + 1)

    def place(self, id: str) -> MemberPlace:
        """Give the place of a process."""
        if id == EDGE_ID:
            return self.edge
        if id not in self.replicas:
            known = ", ".join(self.replicas)
            raise BadDeployment(f"there is no replica {id!r} of {self.name}; there are {known}")
        return self.replicas[id]

    def security(self, id: str) -> Security:
        """Give what the other processes must show to this one: a secret of each pair's own."""
        if not self.secret:
            return OPEN
        others = [other for other in (*self.replicas, EDGE_ID) if other != id]
        return Security(secrets={other: self._secret_of(id, other) for other in others})

    def _secret_of(self, one: str, other: str) -> bytes:
        pair = "+".join(sorted((one, other)))
        return hmac.digest(self.secret.encode(), pair.encode(), "sha256")

    def peers(self, id: str) -> dict[str, Address]:
        """Give the addresses of all processes but one."""
        places = {**self.replicas, EDGE_ID: self.edge}
        return {
            other: parse_address(place.listen) for other, place in places.items() if other != id
        }

    @property
    def makes_copies(self) -> bool:
        """Whether copies of the program are kept as its state."""
        return self.copy_bytes > 0 and self.guard is Guard.QUORUM

    @property
    def settings(self) -> LlftSettings:
        """The engine's limits for real programs.

        A program's state cannot be taken out of its process. Copies of that are kept, and the
        agents say when; until the first one the log since the founding is the state.
        """
        return LlftSettings(
            guard=self.guard,
            window=WINDOW,
            state_every=_NEVER,
            batch=48,
            unstored_max=4096,
            lag_max=50_000,
            lag_patience=seconds(10),
        )


def program_folder(name: str) -> Path | None:
    """Give the folder of a program that was run on this machine; nothing if there is none."""
    folder = state_folder() / name
    return folder if (folder / FILE).is_file() else None


_decode = JsonDecoder(ProgramDeployment).decode


def read_deployment(path: Path) -> ProgramDeployment:
    """Read a deployment's file; raises `BadDeployment`."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            found = _decode(file.read())
    except OSError as error:
        raise BadDeployment(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise BadDeployment(f"{path} is no file of a replicated program: {error}") from None
    problem = _problem_with(found)
    if problem:
        raise BadDeployment(f"{path} is no file of a replicated program: {problem}")
    if found.secret and mode & FOR_OTHERS:
        raise BadDeployment(
            f"the secret in {path} is none: its mode {mode & 0o777:04o} lets every user of this "
            f"machine at it; write another, and chmod 600 {path}"
        )
    places = [found.edge, *found.replicas.values()]
    if not found.secret and not all(is_loopback(parse_address(each.listen)) for each in places):
        raise BadDeployment(
            f"{path} has no secret, and other machines can reach the group: anybody there could "
            'pass for one of its processes. Give it one: "secret": "..." of 16 letters or more'
        )
    return found


def _problem_with(deployment: ProgramDeployment) -> str:
    """Say what of a deployment cannot be; nothing if it can."""
    if not deployment.replicas or EDGE_ID in deployment.replicas:
        return f"it has one replica or more, and none is called {EDGE_ID!r}"
    for name in (deployment.name, *deployment.replicas):
        if not NAME.fullmatch(name):
            return f"{name!r} is no name: use letters, digits, dots and hyphens"
    numbers = deployment.founded, deployment.copy_bytes, deployment.journal_bytes_max
    if not all(0 <= each < _NEVER for each in numbers):
        return "times and sizes are not below zero, nor beyond what can be counted"
    if deployment.secret and len(deployment.secret.encode()) < SECRET_BYTES_MIN:
        return f"its secret is shorter than {SECRET_BYTES_MIN} bytes"
    return ""


def encode_deployment(deployment: ProgramDeployment) -> bytes:
    """Give a deployment as its file says it."""
    return msgspec.json.format(msgspec.json.encode(deployment))


def write_deployment(path: Path, deployment: ProgramDeployment) -> None:
    """Write a deployment's file, all of it or nothing; others cannot read the environment in it."""
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_bytes(encode_deployment(deployment))
    draft.replace(path)
