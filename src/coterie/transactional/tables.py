"""Tables: dictionaries of which every key is an object of its own, with its own lock.

To the class a table is a dictionary. Only what a method touches is read, and locked. Which keys
there are is kept apart from the values, in a fixed number of buckets: to go through a table takes
read locks on all buckets, to add or remove a key a write lock on one. So nobody who has gone
through a table can miss a key that appears meanwhile.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from zlib import crc32

from coterie.objects.classes.encodable import decoder, encode, strip

if TYPE_CHECKING:
    from coterie.vsr.calls.executor import ObjectAccess

K = TypeVar("K")
V = TypeVar("V")

BUCKETS = 16
"""How many objects hold the keys of one table: more of them let more keys be added at a time."""


class _Mark:
    """Says of a dictionary that it is a table."""

    def __repr__(self) -> str:
        return "table"


TABLE = _Mark()

Table = Annotated[dict[K, V], TABLE]
"""The type of a field whose keys are objects of their own."""


def is_table(type_: object) -> bool:
    """Say whether a field is a table."""
    return TABLE in getattr(type_, "__metadata__", ())


class TableType:
    """How the keys and values of one table travel."""

    def __init__(self, name: str, type_: object) -> None:
        self.name = name
        key, value = typing.get_args(strip(type_))
        self.key_is_text = key is str
        self.decode_keys = decoder(list[key]).decode  # type: ignore[valid-type]
        self.decode_value = decoder(value).decode

    def object_name(self, key: object) -> str:
        """Give the name of the object that holds the value of a key."""
        word = key if self.key_is_text else encode(key).hex()
        return f"{self.name}/{word}"

    def bucket_name(self, key: object) -> str:
        """Give the name of the object that says whether a key exists, with some others."""
        return f"{self.name}#{crc32(encode(key)) % BUCKETS}"


class OpenTable(MutableMapping[Any, Any]):
    """A table as one call sees it."""

    def __init__(self, kind: TableType, access: ObjectAccess) -> None:
        self._kind = kind
        self._access = access
        self._read: dict[object, tuple[object, bytes]] = {}
        """Values given to the method, which it may have changed in place."""

    def __getitem__(self, key: object) -> object:
        if key in self._read:
            return self._read[key][0]
        data = self._access.read(self._kind.object_name(key))
        if data is None:
            raise KeyError(key)
        value = self._kind.decode_value(data)
        self._read[key] = (value, data)
        return value

    def __setitem__(self, key: object, value: object) -> None:
        name = self._kind.object_name(key)
        if self._access.read(name) is None:
            keys = self._keys(self._kind.bucket_name(key))
            bucket = encode([*keys, key])
            self._kind.decode_keys(bucket)
            self._access.write(self._kind.bucket_name(key), bucket)
        data = encode(value)
        # What nobody could read is refused here, while the method that gives it still runs.
        self._kind.decode_value(data)
        self._access.write(name, data)
        self._read[key] = (value, data)

    def __delitem__(self, key: object) -> None:
        name = self._kind.object_name(key)
        if self._access.read(name) is None:
            raise KeyError(key)
        bucket = self._kind.bucket_name(key)
        left = [each for each in self._keys(bucket) if each != key]
        self._access.write(bucket, encode(left) if left else None)
        self._access.write(name, None)
        self._read.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return self._access.read(self._kind.object_name(key)) is not None

    def __iter__(self) -> Iterator[object]:
        for bucket in range(BUCKETS):
            yield from self._keys(f"{self._kind.name}#{bucket}")

    def __len__(self) -> int:
        return sum(len(self._keys(f"{self._kind.name}#{bucket}")) for bucket in range(BUCKETS))

    def _keys(self, bucket: str) -> list[Any]:
        data = self._access.read(bucket)
        return [] if data is None else self._kind.decode_keys(data)

    def flush(self) -> None:
        """Write what the method changed in place."""
        for key, (value, before) in self._read.items():
            data = encode(value)
            if data != before:
                self._kind.decode_value(data)
                self._access.write(self._kind.object_name(key), data)
