"""Runs the methods of a plain class for `coterie.vsr`: objects by name, made from fields.

Tables are opened, not read: each key is an object of its own. All other fields together are one
object, which is read when a method begins and written when it ends, if it has changed.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.objects import BadArguments, MethodKind, NotReplicable, UnknownMethod, define
from coterie.objects.classes.alteration import alteration, can_alter
from coterie.objects.classes.encodable import encode
from coterie.objects.errors import StateNotEncodable
from coterie.objects.execution.current import enter
from coterie.transactional.failures import encode_failure
from coterie.transactional.tables import OpenTable, TableType, is_table
from coterie.vsr.calls.executor import Completion, Nested
from coterie.vsr.calls.running import Blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from coterie.objects import Method
    from coterie.vsr.calls.executor import ObjectAccess, Running

_FIELDS = ""
"""The name of the object that all plain fields are."""

_NOT_NESTED = (
    "an update awaits the methods of other groups (coterie.transactional.other), and nothing else: "
    "no replica waits inside a turn"
)

_decode_fields = Decoder(dict[str, msgspec.Raw]).decode


class _Call:
    """What runs, as `now`, `random` and `new_id` see it."""

    def __init__(self, clock: Callable[[], int], identity: str) -> None:
        self._clock = clock
        self._identity = identity

    def group_time(self) -> int:
        return self._clock()

    def entropy(self) -> bytes:
        return self._identity.encode()


class ObjectExecutor:
    """An `Executor` for a class, whose updates may be `async`. *clock* gives the primary's time."""

    def __init__(self, cls: type, clock: Callable[[], int] = int) -> None:
        definition = define(cls, may_wait=True)
        if definition.on_tick is not None:
            raise NotReplicable(
                f"{definition.name} has on_tick, and nothing ticks under viewstamped replication: "
                "call an update instead"
            )
        self._definition = definition
        self._clock = clock
        self._tables = [
            TableType(field.name, field.type) for field in definition.fields if is_table(field.type)
        ]
        names = {table.name for table in self._tables}
        initial = definition.state(definition.make())
        filled = [name for name in sorted(names) if initial[name]]
        if filled:
            raise NotReplicable(
                f"{definition.name}.{filled[0]} is a table, and begins empty: fill it by an update"
            )
        self._has_fields = bool(initial.keys() - names)
        self._altering = [
            field
            for field in definition.fields
            if field.name not in names and can_alter(field.type)
        ]
        self._names = names

    def run(self, method: str, arguments: bytes, access: ObjectAccess) -> Running:
        """Run a method."""
        try:
            found = self._definition.method(method)
            values = found.read(arguments)
        except (UnknownMethod, BadArguments) as error:
            return self._failure(error)
        call = _Call(self._clock, access.identity)
        try:
            replicated, tables, before = self._open(access)
            result = _inside(call, lambda: found.function(replicated, *values))
            if inspect.iscoroutine(result):
                result = yield from _drive(call, result)
            data = found.encode_result(result)
            found.check_answer(result, data)
            self._close(found, access, replicated, tables, before)
        except (Blocked, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever a user's method raises is an answer
            return self._failure(error)
        return Completion(data)

    def _open(self, access: ObjectAccess) -> tuple[object, list[OpenTable], bytes]:
        """Make the object as the call sees it."""
        replicated = self._definition.make()
        tables = []
        for kind in self._tables:
            table = OpenTable(kind, access)
            vars(replicated)[kind.name] = table
            tables.append(table)
        if self._has_fields:
            data = access.read(_FIELDS)
            if data is not None:
                self._definition.change(replicated, _decode_fields(data))
        return replicated, tables, self._fields(replicated)

    def _close(
        self,
        method: Method,
        access: ObjectAccess,
        replicated: object,
        tables: list[OpenTable],
        before: bytes,
    ) -> None:
        """Write what the method has changed."""
        if method.kind is MethodKind.QUERY:
            return
        for table in tables:
            table.flush()
        after = self._fields(replicated)
        if self._has_fields and after != before:
            # Whoever reads it next must be able to, or no call would ever succeed again.
            read = self._definition.make()
            self._definition.change(read, _decode_fields(after))
            self._check_unaltered(replicated, read)
            access.write(_FIELDS, after)

    def _check_unaltered(self, written: object, read: object) -> None:
        """Refuse a field that the next call would find to be something else than was assigned."""
        for field in self._altering:
            altered = alteration(field.type, vars(written)[field.name], vars(read)[field.name])
            if altered is not None:
                raise StateNotEncodable(f"{self._definition.name}.{field.name}: {altered}")

    def _failure(self, error: BaseException) -> Completion:
        return Completion(encode_failure(error, self._definition.errors), is_failure=True)

    def _fields(self, replicated: object) -> bytes:
        state = self._definition.state(replicated)
        return encode({name: value for name, value in state.items() if name not in self._names})


def _inside(call: _Call, run: Callable[[], object]) -> object:
    """Let a step of a method ask for time and chance."""
    before = enter(call)
    try:
        return run()
    except GeneratorExit as error:
        # From a method it is an error like others; that it is given up, it is told elsewhere.
        raise RuntimeError("the method raised GeneratorExit") from error
    finally:
        enter(before)


def _drive(call: _Call, coroutine: Coroutine[Nested, Completion, object]) -> Running:
    """Run an `async` method from one call of another group to the next."""
    answer: Completion | None = None
    try:
        while True:
            sent = answer
            try:
                request = _inside(call, lambda: coroutine.send(sent))  # type: ignore[arg-type]  # noqa: B023
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            if not isinstance(request, Nested):
                raise TypeError(_NOT_NESTED)
            answer = yield request
    finally:
        # What a method does when it is given up is of no use to anybody, nor is how it fails.
        with contextlib.suppress(BaseException):
            coroutine.close()
