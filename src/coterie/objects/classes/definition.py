"""What is known of a class that can be replicated: its methods and its state.

The state of an object is its declared fields. It travels in *pieces*, a few dozen kilobytes of
one field each, so that nobody has to hold a large state twice; a large dictionary, list, set or
deque is cut, everything else is one piece. A class that keeps something its fields cannot express
writes `snapshot(self) -> T` and `restore(self, state: T) -> None`, and is one piece.
"""

from __future__ import annotations

import typing
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from coterie.objects.classes import encodable
from coterie.objects.classes.declared import NO_ERRORS, DeclaredErrors
from coterie.objects.classes.methods import Method, MethodKind, clip
from coterie.objects.classes.versions import check_successor, fingerprint
from coterie.objects.errors import StateNotEncodable, UnknownMethod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


ITEM_BYTES = 64
"""What one item of a container is taken to weigh."""


class ReplicatedObject:
    """A base class for those who want one. It declares, and does, nothing.

    A method `on_tick(self) -> None` runs like an update each time the group's clock ticks, also
    when nobody calls: for what expires.
    """

    version: ClassVar[int] = 1
    """Which version of the class this is; see `previous`."""
    previous: ClassVar[type | None] = None
    """The class of the version before: what this one runs as until all replicas have it. See
    `coterie.objects.classes.versions`."""
    commuting: ClassVar[bool] = False
    """Whether all updates commute, so that a stack without total order is enough."""
    errors: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors that updates and queries raise and callers catch by their class; see
    `coterie.objects.classes.declared`."""
    transactional: ClassVar[bool] = True
    """Whether an update that raises leaves no trace. Undoing costs a rebuild of the object if the
    update had begun to change it; False leaves what was changed, the same on every replica."""


NUMBER_MAX = (1 << 63) - 1
"""What both signs can have in 64 bits; what is larger is looked at more closely."""


class Field:
    """One part of the state."""

    __slots__ = (
        *("container", "decode", "holds_immutables", "is_immutable", "kinds", "name", "type"),
        "usual_kind",
    )

    def __init__(self, name: str, type_: object) -> None:
        self.name = name
        self.type = type_
        self.is_immutable = encodable.is_immutable(type_)
        self.kinds = encodable.plain_kinds(type_)
        """Types whose values it can hold, numbers beyond 64 bits and strange text apart."""
        self.usual_kind = next(
            (kind for kind in (int, str, *self.kinds) if kind in self.kinds), object
        )
        plain = encodable.strip(type_)
        origin = typing.get_origin(plain) or plain
        self.container: type | None = origin if origin in {dict, list, set, deque} else None
        """The kind of container, if a snapshot may carry the field in pieces."""
        items = typing.get_args(plain) if self.container is not None else ()
        self.holds_immutables = bool(items) and all(map(encodable.is_immutable, items))
        """Whether it is a container whose items can be shared by copies."""
        self.decode = encodable.decoder(typing.cast("type[object]", type_)).decode

    @property
    def copies_cheaply(self) -> bool:
        """Whether a copy shares everything but the container itself."""
        return self.is_immutable or (self.container is not None and self.holds_immutables)

    def copy(self, value: object) -> object:
        """Give an equal value that shares nothing that can change."""
        if self.is_immutable:
            return value
        if self.holds_immutables and isinstance(value, dict | list | set | deque):
            return value.copy()
        return self.decode(encodable.encode(value))


class Definition:
    """A class that can be replicated. Made by `coterie.objects.define`."""

    def __init__(  # noqa: PLR0913 -- made in one place
        self,
        cls: type,
        *,
        name: str | None = None,
        methods: Mapping[str, Method],
        fields: Sequence[Field],
        defaults: Mapping[str, bytes],
        make: Callable[[], object],
        own_state: object,
        on_tick: Method | None,
        errors: DeclaredErrors = NO_ERRORS,
        version: int = 1,
        previous: Definition | None = None,
    ) -> None:
        self.cls = cls
        self.name = cls.__qualname__ if name is None else name
        """One name for all versions of a class, whatever earlier ones are called by now."""
        self.version = version
        self.previous = previous
        """The previous version of the class, if it is known."""
        self.own_state = own_state
        self.errors = errors
        """The errors that callers can catch by their class."""
        self.methods = dict(methods)
        self.updates = {
            name: method for name, method in methods.items() if method.kind is MethodKind.UPDATE
        }
        self.fields = tuple(fields)
        self.commuting = bool(getattr(cls, "commuting", False))
        self.transactional = bool(getattr(cls, "transactional", True))
        self.has_own_snapshot = own_state is not None
        self.changes_in_place = self.has_own_snapshot or any(
            not field.is_immutable for field in fields
        )
        """Whether setting fields back is not enough to undo an update."""
        self.copies_cheaply = not self.has_own_snapshot and all(
            field.copies_cheaply for field in fields
        )
        self.on_tick = on_tick
        self._fields_by_name = {field.name: field for field in fields}
        self._fractions = tuple(field for field in fields if encodable.has_fractions(field.type))
        self._fields_count = len(self._fields_by_name)
        self._single_values = tuple(
            (field.name, field.kinds) for field in fields if field.is_immutable
        )
        for method in (*self.updates.values(), *([on_tick] if on_tick else [])):
            self._plan(method)
        self._defaults = dict(defaults)
        self._make = make
        self._own_decode = (
            encodable.decoder(typing.cast("type[object]", own_state)).decode if own_state else None
        )

        self.fingerprint = fingerprint(self)
        if previous is not None:
            check_successor(self, previous)

    # ---- versions

    def versions(self) -> Iterator[Definition]:
        """Give this version and those before it that are known, the latest first."""
        definition: Definition | None = self
        while definition is not None:
            yield definition
            definition = definition.previous

    def of_version(self, version: int) -> Definition | None:
        """Give the definition of a version, this one or one before it, if it is known."""
        return next((each for each in self.versions() if each.version == version), None)

    @property
    def oldest(self) -> Definition:
        """The first version that is known: what a new group begins with."""
        *_, oldest = self.versions()
        return oldest

    # ---- methods

    def method(self, name: str, kind: MethodKind | None = None) -> Method:
        """Give a method by name; raise `UnknownMethod` if there is none of that kind."""
        found = self.methods.get(name)
        if found is None:
            known = ", ".join(sorted(self.methods)) or "none"
            raise UnknownMethod(f"{self.name} has no method {name!r}; it has {known}")
        if kind is not None and found.kind is not kind:
            raise UnknownMethod(
                f"{found} is {'an update' if found.kind is MethodKind.UPDATE else 'a query'}, "
                f"not {'an update' if kind is MethodKind.UPDATE else 'a query'}"
            )
        return found

    def encode_call(self, name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        """Check a call and give its arguments as they travel."""
        return self.method(name).encode(args, kwargs)

    # ---- state

    def make(self) -> object:
        """Make an object in its initial state, which shares nothing with any other."""
        made = self._make()
        state = vars(made)
        for name, data in self._defaults.items():
            if name not in state:
                state[name] = self._fields_by_name[name].decode(data)
        return made

    def state(self, replicated: object) -> dict[str, object]:
        """Give what the state of an object consists of, by name."""
        if self._own_decode is not None:
            return {"": replicated.snapshot()}  # type: ignore[attr-defined]
        attributes = vars(replicated)
        if attributes.keys() != self._fields_by_name.keys():
            self._complain(attributes)
        return attributes

    def _complain(self, attributes: Mapping[str, object]) -> None:
        if self._own_decode is not None:
            return  # it may keep what it likes
        extra = sorted(attributes.keys() - self._fields_by_name.keys())
        if extra:
            raise StateNotEncodable(
                f"{self.name} has set {extra[0]!r}, which is not declared: annotate it in the class"
            )
        missing = sorted(self._fields_by_name.keys() - attributes.keys())
        raise StateNotEncodable(f"{self.name} has deleted its field {missing[0]!r}")

    def copy(self, replicated: object) -> object:
        """Make an equal object that shares nothing that can change."""
        state = self.state(replicated)
        made = self.make()
        if self._own_decode is not None:
            made.restore(self._own_decode(encodable.encode(state[""])))  # type: ignore[attr-defined]
            return made
        try:
            vars(made).update({field.name: field.copy(state[field.name]) for field in self.fields})
        except (msgspec.DecodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._not_encodable(replicated, error) from None
        return made

    def weigh(self, replicated: object) -> int:
        """Give about how many bytes the state has, without looking into containers."""
        attributes = vars(replicated)
        return sum(
            ITEM_BYTES * len(attributes[field.name])
            for field in self.fields
            if field.container is not None
            and isinstance(attributes.get(field.name), field.container)
        )

    def canonical_state(self, replicated: object) -> bytes:
        """Give the state so that equal states have equal bytes, on any machine."""
        state = self.state(replicated)
        try:
            if self._fractions:
                # A whole number may stand where a fraction is declared, and is one after transfer.
                state = state | {
                    field.name: field.decode(encodable.encode(state[field.name]))
                    for field in self._fractions
                }
            return encodable.canonical(state)
        except (msgspec.DecodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._not_encodable(replicated, error) from None

    def pieces(self, replicated: object, bytes_aim: int) -> Iterator[tuple[str, bytes]]:
        """Give the state in pieces of about *bytes_aim*: (field, MessagePack), in order.

        Several pieces of a field are parts of one container, and follow each other.
        """
        state = self.state(replicated)
        try:
            if self._own_decode is not None:
                yield "", encodable.encode(state[""])
                return
            for field in self.fields:
                value = state[field.name]
                if field.container is None or type(value) is not field.container:
                    yield field.name, encodable.encode(value)
                else:
                    for piece in _split(value, bytes_aim):
                        yield field.name, piece
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._not_encodable(replicated, error) from None

    def assemble(self, pieces: Iterator[tuple[str, bytes]]) -> object:
        """Make an object from its pieces. Raises what says why it cannot be."""
        made = self.make()
        if self._own_decode is not None:
            for _, data in pieces:
                made.restore(self._own_decode(data))  # type: ignore[attr-defined]
            return made
        fields = self._fields_by_name
        state = vars(made)
        begun: set[str] = set()
        for name, data in pieces:
            field = fields.get(name)
            if field is None:
                raise StateNotEncodable(
                    f"{self.name} has no field {name!r}: the state is of another version"
                )
            value = field.decode(data)
            if name in begun:
                if field.container is None or type(value) is not field.container:
                    raise StateNotEncodable(f"the field {name!r} of {self.name} comes twice")
                _extend(state[name], value)
            else:
                state[name] = value
                begun.add(name)
        return made

    def change(self, replicated: object, changes: Mapping[str, bytes | msgspec.Raw]) -> None:
        """Replace fields by what they became elsewhere."""
        for name, data in changes.items():
            if self._own_decode is not None:
                replicated.restore(self._own_decode(data))  # type: ignore[attr-defined]
            else:
                vars(replicated)[name] = self._fields_by_name[name].decode(data)

    def _not_encodable(self, replicated: object, error: Exception) -> StateNotEncodable:
        if self._own_decode is not None:
            return StateNotEncodable(f"{self.name}.snapshot() gave what cannot be encoded: {error}")
        for field in self.fields:
            value = vars(replicated).get(field.name)
            try:
                encodable.canonical(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as cause:
                return StateNotEncodable(
                    f"the field {field.name!r} of {self.name} ({encodable.describe(field.type)})"
                    f" holds {clip(value)}, which cannot be encoded: {cause}"
                )
        return StateNotEncodable(f"{self.name} cannot be encoded: {error}")

    # ---- what an update leaves

    def _plan(self, method: Method) -> None:
        """Fix what is kept while an update runs, and what is looked at when it has run."""
        assigned = method.assigned if self.transactional else {}
        if assigned is None:
            return
        if len(assigned) <= 1:
            method.touched = next(iter(assigned), "")
        changed = [self._fields_by_name[name] for name in assigned]
        looked_at = [
            field
            for field in changed
            if field.is_immutable
            and not (assigned[field.name] and assigned[field.name] <= field.kinds)
        ]
        method.checked = tuple((field.name, field.usual_kind) for field in looked_at)
        if len(looked_at) == 1 and int in looked_at[0].kinds:
            method.checked_number = looked_at[0].name

    def check_change(self, state: Mapping[str, object], before: Mapping[str, object]) -> None:
        """Raise `StateNotEncodable` if an update left a value that no other replica could have.

        Looks at fields with single values that are not those from *before*: a number beyond 64
        bits, text that is none, a value of another type. What is inside containers is found when
        the state is encoded: to look into them at every update would cost as much as they hold.
        """
        if len(state) != self._fields_count:
            self._complain(state)
        for name, kinds in self._single_values:
            value = state.get(name)
            if value is before.get(name):
                continue
            kind = type(value)
            if kind not in kinds or not (
                -NUMBER_MAX <= value <= NUMBER_MAX  # type: ignore[operator]
                if kind is int
                else kind is not str or value.isascii()  # type: ignore[attr-defined]
            ):
                self._check_field(self._fields_by_name[name], state)

    def check_assigned(
        self, assigned: Sequence[tuple[str, type]], state: Mapping[str, object]
    ) -> None:
        """Do the same for an update of which it is known what it can have *assigned*."""
        for name, plain in assigned:
            value = state[name]
            if type(value) is plain and (
                -NUMBER_MAX <= value <= NUMBER_MAX  # type: ignore[operator]
                if plain is int
                else plain is not str or value.isascii()  # type: ignore[attr-defined]
            ):
                continue  # nearly always
            field = self._fields_by_name[name]
            kind = type(value)
            if kind in {int, str} or kind not in field.kinds:
                self._check_field(field, state)

    def check(self, replicated: object) -> None:
        """Raise `StateNotEncodable` unless the state can be taken over by another replica."""
        state = self.state(replicated)
        if self._own_decode is not None:
            self._own_decode(encodable.encode(state[""]))
            return
        for field in self.fields:
            self._check_field(field, state)

    def _check_field(self, field: Field, state: Mapping[str, object]) -> None:
        if field.name not in state:
            raise StateNotEncodable(f"{self.name} has deleted its field {field.name!r}")
        try:
            field.decode(encodable.encode(state[field.name]))
        except (msgspec.DecodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise StateNotEncodable(
                f"the field {field.name!r} of {self.name} is declared"
                f" {encodable.describe(field.type)}, but holds"
                f" {clip(state[field.name])}: {error}"
            ) from None


def _split(value: Any, bytes_aim: int) -> Iterator[bytes]:  # noqa: ANN401 -- any container
    """Encode a container in parts; an empty one is one part."""
    items = iter(value.items() if isinstance(value, dict) else value)
    kind = dict if isinstance(value, dict) else list
    count, left = 64, len(value)
    while True:
        part = kind(islice(items, count))
        left -= len(part)
        data = encodable.encode(part)
        yield data
        if not left:
            return
        count = max(1, min(1 << 16, count * bytes_aim // max(1, len(data))))


def _extend(container: Any, part: Any) -> None:  # noqa: ANN401 -- any container
    if isinstance(container, dict | set):
        container.update(part)
    else:
        container.extend(part)
