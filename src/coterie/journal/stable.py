"""Stable values: the few facts that must survive even where the journal does not.

They are one small file per replica, replaced atomically and synced at every change, whatever the
journal's own mode of syncing:

- the incarnation: durable before the life that has it begins, so no two lives ever share one;
- the recovery bit: whether the replica has ever been in a primary view. It is set before the first
  primary view is accepted and not earlier, so founders that crash before that are no zombies;
- the bootstrap mark: whether the replica may found its group. A replica that starts with an empty
  disk and no mark is a zombie, because its disk may have held something;
- for a family whose replicas are bound to it, the configuration of the group, stored when the
  replica is created;
- what its engine must never forget, whatever becomes of its journal: its *promises*.

The boot id under which a life was written is not here but in the heads of its segments: the
question it answers is about the segments, and a new life that crashed before it wrote anything
must not change the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.journal.disk import DRAFT, replace_file
from coterie.journal.format import encode_fixed, folder_of, read_fixed
from coterie.kernel.decoding import Decoder
from coterie.kernel.views import Configuration

if TYPE_CHECKING:
    from coterie.journal.disk import Disk

_MAGIC = b"COTSTBL\n"
_NAME = "stable"
_encoder = msgspec.msgpack.Encoder()
_NO_PROMISES = msgspec.Raw(_encoder.encode([[0, "", 0]] * 3))
"""What stands there where nothing was promised: no view, three times."""
_FIELDS_ALWAYS = 7


class StableValues(msgspec.Struct, frozen=True, array_like=True):
    """What the file of stable values holds."""

    group: str
    replica: str
    incarnation: int = 0
    """The highest life that may have begun."""
    has_been_primary: bool = False
    is_founder: bool = False
    configuration: Configuration | None = None
    """Who its group consists of, where the replica is bound to that."""
    promises: msgspec.Raw = _NO_PROMISES
    """What its engine must never forget, as the family encodes it."""
    family: str = ""
    """The engine family; empty for the first two, which are told by the configuration."""
    is_removed: bool = False
    """Whether the replica was removed from its group, for good."""


_decoder = Decoder(StableValues)


class Stable:
    """The stable values of one replica: read once, then kept in step with the disk."""

    def __init__(self, disk: Disk, group: str, replica: str) -> None:
        self._disk = disk
        self._folder = folder_of(group, replica)
        self.path = f"{self._folder}/{_NAME}"
        self.values = StableValues(group, replica)
        self.exists = False
        """Whether the file is there."""
        self.damage = ""
        """Why the file that is there cannot be used, in words."""
        self._read()

    @property
    def has_been_primary(self) -> bool:
        """The recovery bit: whether the replica has ever been in a primary view."""
        return self.values.has_been_primary

    @property
    def promises(self) -> msgspec.Raw | None:
        """What the engine must never forget, as its family encodes it; None before its first."""
        promises = self.values.promises
        return None if bytes(promises) == bytes(_NO_PROMISES) else promises

    def claim(
        self,
        incarnation: int,
        *,
        has_been_primary: bool = False,
        promises: msgspec.Struct | None = None,
    ) -> None:
        """Begin a life: from now on no other one gets this number.

        *promises* are those that the journal tells, which may be later than these.
        """
        assert incarnation > self.values.incarnation, "lives are counted upwards"
        self._replace(
            msgspec.structs.replace(
                self.values,
                incarnation=incarnation,
                has_been_primary=self.values.has_been_primary or has_been_primary,
                promises=self.values.promises if promises is None else _raw(promises),
            )
        )

    def set_been_primary(self) -> None:
        """Set the recovery bit."""
        self._replace(msgspec.structs.replace(self.values, has_been_primary=True))

    def set_founder(self, configuration: Configuration | None = None, family: str = "") -> None:
        """Set the bootstrap mark, with what the replica is bound to."""
        self._replace(
            msgspec.structs.replace(
                self.values, is_founder=True, configuration=configuration, family=family
            )
        )

    def set_joining(self, configuration: Configuration) -> None:
        """Note that the replica joins a group; of *configuration* it knows nothing but names."""
        self._replace(msgspec.structs.replace(self.values, configuration=configuration))

    def set_removed(self) -> None:
        """Mark the disk of a replica that was removed from its group: it has no later life."""
        self._replace(msgspec.structs.replace(self.values, is_removed=True))

    def set_promises(self, promises: msgspec.Struct) -> None:
        """Keep what the engine must never forget."""
        self._replace(msgspec.structs.replace(self.values, promises=_raw(promises)))

    def _read(self) -> None:
        if _NAME not in self._disk.names(self._folder):
            return
        self.exists = True
        try:
            body, _, _ = read_fixed(self._disk, self.path, _MAGIC, "file of stable values")
            values = _decoder.decode(body)
        except (ValueError, msgspec.DecodeError) as error:
            self.damage = str(error)
            return
        if (values.group, values.replica) != (self.values.group, self.values.replica):
            self.damage = f"it belongs to replica {values.replica} of group {values.group}"
            return
        self.values = values

    def _replace(self, values: StableValues) -> None:
        fields = msgspec.structs.astuple(values)
        # A field that came later is written where it says something: the rest stays as it was.
        kept = fields if values.is_removed else fields[:-1]
        if not values.family and not values.is_removed:
            kept = fields[:_FIELDS_ALWAYS]
        data = encode_fixed(_MAGIC, _encoder.encode(kept))
        replace_file(self._disk, self._folder, _NAME, data)
        self.values = values
        self.exists = True
        self.damage = ""


def _raw(promises: msgspec.Struct) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(promises))


def found_group(
    disk: Disk,
    group: str,
    replica: str,
    configuration: Configuration | None = None,
    *,
    family: str = "",
) -> None:
    """Set the bootstrap mark: this replica is one of those with which the group begins.

    A replica that is bound to the *configuration* of its group, as a cohort is, is created with it.
    Raises `ValueError` if the disk holds anything of this replica already: a mark set later would
    let it forget what it promised.
    """
    stable = Stable(disk, group, replica)
    names = [name for name in disk.names(folder_of(group, replica)) if not name.endswith(DRAFT)]
    if names and not stable.values.is_founder:
        raise ValueError(
            f"replica {replica} of group {group} is on this disk already: only a new replica can "
            "found a group"
        )
    if not stable.values.is_founder:
        stable.set_founder(configuration, family)


def join_group(disk: Disk, group: str, replica: str, configuration: Configuration) -> None:
    """Make the disk of a replica that joins a group ready, if it is new.

    Such a replica knows nothing, and counts for nothing until its group says so.
    """
    if not [name for name in disk.names(folder_of(group, replica)) if not name.endswith(DRAFT)]:
        Stable(disk, group, replica).set_joining(configuration)
