"""From a plain class to a definition: what is read, and what is refused.

    class Seats:
        taken: dict[str, str] = {}

        @update
        def book(self, seat: str, name: str) -> None:
            if seat in self.taken:
                raise SeatTaken(seat)
            self.taken[seat] = name

        @query
        def holder(self, seat: str) -> str | None:
            return self.taken.get(seat)

    seats = define(Seats)

The class stays what it is: it can be made and called without Coterie, as in its own tests. A base
class is not needed (`ReplicatedObject` only names the declarations there are).

**Methods.** An *update* may change the object and runs on every replica, in the one order; a
*query* may not, and runs on one. All arguments and the result are annotated.

**State.** The fields are the annotated names of the class and what the new object has in its
`__dict__`. A default in the class body is copied for each object. A generic class is defined by
whoever inherits from it and says what its type variables are (`coterie.objects.classes.generics`).
A class that keeps something its fields cannot express writes `snapshot(self) -> T` and
`restore(self, state: T) -> None`.

**Refused** when the class is defined, with the reason: what cannot be encoded, a missing
annotation, what can be recognised to make replicas differ (`coterie.objects.code.nondeterminism`),
a query that changes a field, an update that sets an undeclared one.
"""

from __future__ import annotations

import inspect
import types
import typing
from typing import TYPE_CHECKING, ClassVar

import msgspec

from coterie.objects.classes import encodable
from coterie.objects.classes.annotations import read_annotations
from coterie.objects.classes.declared import declared_errors
from coterie.objects.classes.definition import Definition, Field
from coterie.objects.classes.generics import bindings, fill
from coterie.objects.classes.methods import (
    MARK,
    NO_DEFAULT,
    Argument,
    Method,
    MethodKind,
    clip,
    fresh_copy,
)
from coterie.objects.classes.versions import own_upgrade, previous_of, version_of
from coterie.objects.code import bytecode
from coterie.objects.code.assignments import assigned_fields
from coterie.objects.code.nondeterminism import (
    factory_differences,
    making_differences,
    recognised_differences,
)
from coterie.objects.code.raise_safety import SafetyProof
from coterie.objects.errors import NotReplicable, StateNotEncodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


def define(
    cls: type, make: Callable[[], object] | None = None, *, may_wait: bool = False
) -> Definition:
    """Read a class; raise `NotReplicable`, with the reason, if it cannot be replicated.

    *make* makes the object in its initial state, the same on every replica; without it the class
    is called without arguments. With *may_wait* updates may be `async`, for engines under which
    an update may call other groups (`coterie.transactional`).
    """
    return _define(cls, make, None, may_wait=may_wait)


def _define(
    cls: type, make: Callable[[], object] | None, name: str | None, *, may_wait: bool
) -> Definition:
    """Read a class; *name* is what its latest version is called, if this is an earlier one."""
    if not isinstance(cls, type):
        raise NotReplicable(f"{cls!r} is not a class: pass the class, not an object of it")
    made = _make_one(cls, make)
    methods = dict(_methods(cls, may_wait=may_wait))
    if not any(method.kind is MethodKind.UPDATE for method in methods.values()):
        raise NotReplicable(f"{cls.__qualname__} has no update: mark one with @update")
    own_state = _own_state(cls)
    fields, defaults = ([], {}) if own_state else _fields(cls, made)
    _check_code(cls, methods, fields, own_state=own_state is not None)
    _check_making(cls, make, methods, fields)
    on_tick = _on_tick(cls)
    previous = previous_of(cls)
    name = cls.__qualname__ if name is None else name
    _prove_clean(cls, [*methods.values(), *([on_tick] if on_tick else [])], fields)
    definition = Definition(
        cls,
        name=name,
        version=version_of(cls, {field.name for field in fields}),
        previous=_define(previous, None, name, may_wait=may_wait) if previous else None,
        methods=methods,
        fields=fields,
        defaults=defaults,
        make=make or cls,
        own_state=own_state,
        on_tick=on_tick,
        errors=declared_errors(cls, {field.name for field in fields}),
    )
    try:
        definition.check(definition.make())
        states = {definition.canonical_state(definition.make()) for _ in range(2)}
    except (StateNotEncodable, msgspec.DecodeError, TypeError, ValueError) as error:
        raise NotReplicable(f"{cls.__qualname__}: in its initial state {error}") from None
    if len(states) > 1:
        raise NotReplicable(
            f"{cls.__qualname__} is not the same when it is made twice, and would differ from"
            " replica to replica: let its initial state depend on nothing, and set the rest by an"
            " update"
        )
    return definition


# ---- reading a class


def _make_one(cls: type, make: Callable[[], object] | None) -> object:
    try:
        made = (make or cls)()
    except TypeError as error:
        raise NotReplicable(
            f"{cls.__qualname__} cannot be made without arguments ({error}): give them defaults, or"
            " pass define() a function that makes it"
        ) from None
    if type(made) is not cls:
        raise NotReplicable(f"what makes {cls.__qualname__} gave {clip(made)}")
    if not hasattr(made, "__dict__"):
        if hasattr(cls, "__attrs_attrs__"):
            raise NotReplicable(f"{cls.__qualname__} has slots: write @define(slots=False)")
        raise NotReplicable(f"{cls.__qualname__} uses __slots__: leave them out")
    return made


def _methods(cls: type, *, may_wait: bool) -> Iterator[tuple[str, Method]]:
    for name in dir(cls):
        function = inspect.getattr_static(cls, name)
        kind = getattr(function, MARK, None)
        if kind is None:
            for base in cls.__mro__[1:]:
                marked = getattr(vars(base).get(name), MARK, None)
                if marked is not None:
                    raise NotReplicable(
                        f"{cls.__qualname__}.{name} hides the {marked.value} of"
                        f" {base.__qualname__}: mark it with @{marked.value}, too"
                    )
            continue
        where = f"{cls.__qualname__}.{name}"
        if getattr(function, "__name__", name) != name:
            raise NotReplicable(
                f"{where} is {function.__name__}() under another name: callers could not tell the"
                " two apart; write a method that calls it"
            )
        if not isinstance(function, types.FunctionType):
            raise NotReplicable(
                f"{where} is not a plain method: put @{kind.value} outermost on one"
            )
        if not (may_wait and kind is MethodKind.UPDATE and inspect.iscoroutinefunction(function)):
            _check_is_plain(where, function)
        yield name, _method(where, cls, kind, function)


def _check_is_plain(where: str, function: types.FunctionType) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise NotReplicable(f"{where} is async: a method may not wait; write it as a plain one")
    if inspect.isgeneratorfunction(function):
        raise NotReplicable(f"{where} is a generator, which cannot be answered: give a list")


def _method(where: str, cls: type, kind: MethodKind, function: types.FunctionType) -> Method:
    name = function.__name__
    if name.startswith("_"):
        raise NotReplicable(f"{where} begins with an underscore, and callers could not use it")
    hints = read_annotations(where, function)
    owner = next(base for base in cls.__mro__ if name in vars(base))
    variables = bindings(cls)[owner]
    hints = {each: fill(type_, variables) for each, type_ in hints.items()}
    arguments: list[Argument] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise NotReplicable(
                f"{where}: {parameter.name!r} takes any number of arguments: use a list or a dict"
            )
        if parameter.name not in hints:
            raise NotReplicable(
                f"{where}: argument {parameter.name!r} has no annotation: say what it is"
            )
        argument = Argument(
            parameter.name,
            hints[parameter.name],
            parameter.default,
            parameter.kind is parameter.KEYWORD_ONLY,
        )
        _check_type(f"{where}: argument {parameter.name!r}", argument.type)
        _check_default(where, argument)
        arguments.append(argument)
    if "return" not in hints:
        raise NotReplicable(f"{where} does not say what it answers: write -> None, or what it is")
    _check_type(f"{where}: its result", hints["return"])
    return Method(cls.__qualname__, kind, function, arguments, hints["return"])


def _check_type(what: str, type_: object) -> None:
    reason = encodable.why_not(type_)
    if reason is not None:
        raise NotReplicable(f"{what} is {encodable.describe(type_)}: {reason}")


def _check_default(where: str, argument: Argument) -> None:
    if argument.is_optional:
        try:
            fresh_copy(argument.default, argument.type)
        except (msgspec.DecodeError, TypeError, ValueError, OverflowError) as error:
            raise NotReplicable(
                f"{where}: the default of {argument.name!r} is {clip(argument.default)}, not"
                f" {encodable.describe(argument.type)}: {error}"
            ) from None


def _own_state(cls: type) -> object:
    has = [callable(getattr(cls, name, None)) for name in ("snapshot", "restore")]
    if not any(has):
        return None
    where = f"{cls.__qualname__}.snapshot"
    if not all(has):
        raise NotReplicable(f"{cls.__qualname__} has one of snapshot() and restore(): write both")
    hints = read_annotations(where, cls.snapshot)  # type: ignore[attr-defined]
    state = hints.get("return")
    if state is None or state is type(None):
        raise NotReplicable(f"{where}() does not say what it gives: annotate its result")
    _check_type(f"{where}(): its result", state)
    return state


def _fields(cls: type, made: object) -> tuple[list[Field], dict[str, bytes]]:
    """Find the fields, and the defaults that stand in the class body, encoded."""
    hints = read_annotations(cls.__qualname__, cls)
    bound = bindings(cls)
    owners = {
        name: base for base in reversed(cls.__mro__) for name in inspect.get_annotations(base)
    }
    annotated = {
        name: fill(type_, bound[owners[name]])
        for name, type_ in hints.items()
        if typing.get_origin(type_) is not ClassVar and type_ is not ClassVar
    }
    attributes = vars(made)
    fields: list[Field] = []
    defaults: dict[str, bytes] = {}
    for name in [*annotated, *(name for name in attributes if name not in annotated)]:
        where = f"{cls.__qualname__}.{name}"
        if name in attributes:
            value = attributes[name]
        else:
            value = inspect.getattr_static(cls, name, NO_DEFAULT)
            if value is NO_DEFAULT or isinstance(value, types.MemberDescriptorType):
                raise NotReplicable(f"{where} has no initial value: give it one")
        reason = encodable.why_not_value(value)
        if reason is not None:
            raise NotReplicable(f"{where} holds {clip(value)}: {reason}")
        type_ = annotated[name] if name in annotated else _infer(where, value)
        _check_type(where, type_)
        fields.append(Field(name, type_))
        if name not in attributes:
            defaults[name] = _encode_default(where, value)
    return fields, defaults


def _encode_default(where: str, value: object) -> bytes:
    try:
        return encodable.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotReplicable(f"{where} holds {clip(value)}: {error}") from None


def _infer(where: str, value: object) -> object:
    if type(value) in {bool, int, float, str, bytes}:
        return type(value)
    raise NotReplicable(
        f"{where} has no annotation, and {clip(value)} does not say what it may hold: annotate it"
        " in the class body"
    )


def _check_code(
    cls: type, methods: Mapping[str, Method], fields: Sequence[Field], *, own_state: bool
) -> None:
    names = {field.name for field in fields}
    mutable = {field.name for field in fields if not field.is_immutable}
    sets = {field.name for field in fields if _is_set(field.type)}
    for method in methods.values():
        function = _plain(cls, method.name)
        if function is None:
            continue
        if method.kind is MethodKind.QUERY:
            _check_query(method, function, methods, names, mutable)
        else:
            arguments = {each.name for each in method.arguments if _is_set(each.type)}
            _check_update(cls, str(method), function, sets, arguments)
            if not own_state:
                _check_declared(cls, str(method), function, names)
    carrying = own_upgrade(cls) if previous_of(cls) is not None else None
    if carrying is not None:
        _check_update(cls, f"{cls.__qualname__}.upgrade", carrying, sets, set())
    tick = _plain(cls, "on_tick")
    if tick is not None:
        where = f"{cls.__qualname__}.on_tick"
        _check_update(cls, where, tick, sets, set())
        if not own_state:
            _check_declared(cls, where, tick, names)


def _check_making(
    cls: type,
    make: Callable[[], object] | None,
    methods: Mapping[str, Method],
    fields: Sequence[Field],
) -> None:
    """Refuse what would differ in a new object, or in what fills arguments up."""
    sets = {field.name for field in fields if _is_set(field.type)}
    differences = making_differences(cls, make or cls, sets)
    if differences:
        raise NotReplicable(
            f"{cls.__qualname__}, when it is made, would differ from replica to replica."
            f" {differences[0]}"
        )
    for method in methods.values():
        for argument in method.arguments:
            records = encodable.records_in(argument.type)
            differences = factory_differences(cls, sorted(records, key=lambda each: each.__name__))
            if differences:
                raise NotReplicable(
                    f"{method}: argument {argument.name!r}, where a caller leaves something out,"
                    f" would differ from replica to replica. {differences[0]}"
                )


def _is_set(type_: object) -> bool:
    plain = encodable.strip(type_)
    return (typing.get_origin(plain) or plain) in {set, frozenset}


def _check_update(
    cls: type, where: str, function: types.FunctionType, sets: set[str], arguments: set[str]
) -> None:
    differences = recognised_differences(cls, function, sets, arguments)
    if differences:
        raise NotReplicable(f"{where} would differ from replica to replica. {differences[0]}")


def _check_declared(cls: type, where: str, function: types.FunctionType, fields: set[str]) -> None:
    undeclared = bytecode.attributes_set(function) - fields
    undeclared -= {name for name in undeclared if isinstance(_static(cls, name), property)}
    if undeclared:
        raise NotReplicable(
            f"{where} sets self.{min(undeclared)}, which is not declared: annotate it in the"
            " class body and give it an initial value"
        )


def _check_query(
    method: Method,
    function: types.FunctionType,
    methods: Mapping[str, Method],
    fields: set[str],
    mutable: set[str],
) -> None:
    changed = bytecode.attributes_stored(function) & fields
    changed |= bytecode.attributes_set(function)
    if changed:
        raise NotReplicable(f"{method} is a query, but sets {min(changed)!r}: make it an update")
    changed = bytecode.fields_changed_in_place(function, mutable)
    if changed:
        raise NotReplicable(
            f"{method} is a query, but changes what is in {min(changed)!r}: make it an update"
        )
    for name, _, _ in bytecode.own_uses(function):
        if name in methods and methods[name].kind is MethodKind.UPDATE:
            raise NotReplicable(f"{method} is a query, but calls the update {name!r}")


def _on_tick(cls: type) -> Method | None:
    function = _static(cls, "on_tick")
    if function is None:
        return None
    where = f"{cls.__qualname__}.on_tick"
    if not isinstance(function, types.FunctionType) or hasattr(function, MARK):
        raise NotReplicable(f"{where} must be a plain method without a mark")
    if len(inspect.signature(function).parameters) != 1:
        raise NotReplicable(f"{where} takes no arguments: use coterie.now()")
    return Method(cls.__qualname__, MethodKind.UPDATE, function, (), None)


def _prove_clean(cls: type, methods: Sequence[Method], fields: Sequence[Field]) -> None:
    harmless = {field.name for field in fields}
    for field in fields:
        harmless |= encodable.attribute_names(field.type)
    for method in methods:
        for argument in method.arguments:
            harmless |= encodable.attribute_names(argument.type)
    # A method of the same name as a field of some record could do anything.
    harmless -= {name for name in harmless if callable(_static(cls, name))}
    proof = SafetyProof(cls, harmless)
    for method in methods:
        function = _plain(cls, method.name)
        if function is not None:
            method.clean_offsets = proof.clean_offsets(function)
            method.assigned = assigned_fields(
                cls,
                function,
                (field.name for field in fields),
                {
                    argument.name: encodable.only_plain_kinds(argument.type)
                    for argument in method.arguments
                },
            )


def _plain(cls: type, name: str) -> types.FunctionType | None:
    function = _static(cls, name)
    return function if isinstance(function, types.FunctionType) else None


def _static(cls: type, name: str) -> object:
    return inspect.getattr_static(cls, name, None)
