"""Versions of a class: what a later one may change, and how a state is carried over.

    class SeatsOfVersion1: ...              # as the replicas run it that are not yet upgraded

    class Seats:
        version = 2
        previous = SeatsOfVersion1
        taken: dict[str, Booking] = {}

        def upgrade(self, old: SeatsOfVersion1) -> None:
            self.taken = {seat: Booking(name) for seat, name in old.taken.items()}

A replica with the later class runs the earlier one until all replicas of the group have the later
one. Then, at one place in the order, all of them carry their state over
(`coterie.objects.execution.machine`, `docs/use/upgrades.md`). So the code of the earlier class has
to be kept for as long as a group may be in its state, and apart from that a later version is free:
in its fields, and in what its methods do. Not in which methods there are, because callers are not
upgraded at that moment: a method stays as it is seen from outside, except that it may take further
optional arguments.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING
from zlib import crc32

from coterie.objects.classes import encodable
from coterie.objects.classes.methods import MARK
from coterie.objects.errors import NotReplicable, StateNotEncodable

if TYPE_CHECKING:
    from coterie.objects.classes.definition import Definition
    from coterie.objects.classes.methods import Argument, Method


def version_of(cls: type, fields: set[str]) -> int:
    """Give the version a class declares; a field may be called `version`, too, and is none."""
    declared = vars(cls).get("version", 1)
    if "version" in fields:
        if previous_of(cls) is not None:
            raise NotReplicable(
                f"{cls.__qualname__}.version is a field: write version: ClassVar[int] for the"
                " version of the class"
            )
        return 1
    if not isinstance(declared, int):
        return 1  # something else of that name
    if declared < 1:
        raise NotReplicable(f"{cls.__qualname__}.version is {declared}: versions begin with 1")
    return declared


def previous_of(cls: type) -> type | None:
    """Give the class of the version before, if one is declared."""
    found = vars(cls).get("previous")
    return found if isinstance(found, type) else None


def own_upgrade(cls: type) -> types.FunctionType | None:
    """Give the method that carries a state over, if the class has one of its own."""
    found = vars(cls).get("upgrade")
    return found if isinstance(found, types.FunctionType) and not hasattr(found, MARK) else None


# ---- what may change


def check_successor(new: Definition, old: Definition) -> None:
    """Raise `NotReplicable` if a class cannot follow another in a running group."""
    where = f"{new.name} of version {new.version}"
    if new.version != old.version + 1:
        raise NotReplicable(
            f"{where} follows version {old.version}: give it version = {old.version + 1}"
        )
    for name, method in old.methods.items():
        later = new.methods.get(name)
        if later is None:
            raise NotReplicable(
                f"{where} has no {method.kind.value} {name!r}: callers may still use it, so keep it"
            )
        reason = _why_not_the_same(method, later)
        if reason is not None:
            raise NotReplicable(f"{where}: {name!r} {reason}; give the new one another name")
    if own_upgrade(new.cls) is None:
        _check_fields(where, new, old)
    try:
        new.check(upgrade(new, old, old.make()))
    except StateNotEncodable as error:
        raise NotReplicable(f"{where}: after upgrade() of the initial state {error}") from None
    except Exception as error:
        raise NotReplicable(f"{where}: upgrade() of the initial state failed: {error!r}") from error


def _why_not_the_same(old: Method, new: Method) -> str | None:
    if new.kind is not old.kind:
        return f"was {old.kind.value} and is {new.kind.value}"
    if encodable.outline(new.result) != encodable.outline(old.result):
        return (
            f"answered {encodable.describe(old.result)} and answers"
            f" {encodable.describe(new.result)}"
        )
    for before, after in zip(old.arguments, new.arguments, strict=False):
        if _outline_argument(before) != _outline_argument(after):
            return (
                f"took {before.name}: {encodable.describe(before.type)} and takes"
                f" {after.name}: {encodable.describe(after.type)}"
            )
    if new.count < old.count:
        return f"took {old.count} arguments and takes {new.count}"
    if not all(argument.is_optional for argument in new.arguments[old.count :]):
        return f"takes {new.arguments[old.count].name}, which has no default"
    return None


def _outline_argument(argument: Argument) -> tuple[object, ...]:
    return (
        argument.name,
        encodable.outline(argument.type),
        argument.keyword_only,
        argument.is_optional,
    )


def _check_fields(where: str, new: Definition, old: Definition) -> None:
    if new.has_own_snapshot or old.has_own_snapshot:
        raise NotReplicable(f"{where} has its own snapshot(): write upgrade(self, old)")
    later = {field.name: encodable.outline(field.type) for field in new.fields}
    for field in old.fields:
        if later.get(field.name) != encodable.outline(field.type):
            raise NotReplicable(
                f"{where}: the field {field.name!r} ({encodable.describe(field.type)}) is gone or"
                " another: write upgrade(self, old), which says what becomes of it"
            )


# ---- carrying a state over


def upgrade(new: Definition, old: Definition, replicated: object) -> object:
    """Give the object of the later version that follows from one of the earlier.

    It shares nothing with the earlier one. Fields of the same name and type are carried over;
    then `upgrade`, if the class has one, may look at the earlier object.
    """
    before = old.copy(replicated)
    made = new.make()
    own = own_upgrade(new.cls)
    if own is None:
        vars(made).update(old.state(before))
        return made
    if not new.has_own_snapshot and not old.has_own_snapshot:
        kept = {field.name: encodable.outline(field.type) for field in new.fields}
        vars(made).update(
            {
                field.name: vars(before)[field.name]
                for field in old.fields
                if kept.get(field.name) == encodable.outline(field.type)
            }
        )
    own(made, before)
    return made


def fingerprint(definition: Definition) -> int:
    """Give a number that classes share whose methods and fields look the same from outside."""
    lines = [
        f"{method.kind.value} {name}"
        f"({', '.join(map(str, map(_outline_argument, method.arguments)))})"
        f" {encodable.outline(method.result)}"
        for name, method in sorted(definition.methods.items())
    ]
    if definition.own_state is not None:
        lines.append(f"snapshot {encodable.outline(definition.own_state)}")
    lines += sorted(f"{field.name}: {encodable.outline(field.type)}" for field in definition.fields)
    return crc32("\n".join(lines).encode())
