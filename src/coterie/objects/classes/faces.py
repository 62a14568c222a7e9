"""How a class looks to its callers, for type checkers and editors.

One class has three faces: itself, in its own tests; the object behind a blocking client, which is
called in just the same way; and the object behind an async client, whose methods are awaited. A
type checker tells them apart as an *instance* of the class and the *class*:

    async with connect(Counter, address) as counter:    # to the type checker: type[Counter]
        total = await counter.add(3)                     # int
        done = await counter.add.detailed(3)             # Result[int]
        total = await counter.add.options(deadline=1)(3)

    with connect_blocking(Counter, address) as counter:  # to the type checker: Counter
        total = counter.add(3)                           # int

To that end the marks `@update` and `@query` are, to the type checker, descriptors whose `__get__`
gives one type on the class and another on an instance. It is a small untruth (what an async client
gives is no class), and the price of completed names and checked arguments without generated code
or a plugin, which Python's types cannot otherwise express. Nothing of it exists at run time: a
marked method is the plain function it was.

What is not an argument of the method goes through `options`, so that it takes no name away from
the methods of users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from typing import Any

    from coterie.kernel.engine import Standing
    from coterie.kernel.views import Viewstamp
    from coterie.objects.execution.commands import Grounds

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

LevelName = Literal["dirty", "weak", "consistent"]
ColourName = Literal["red", "green"]


class AnyResult(Protocol):
    """A result, whatever its type: for an update to rest on it, a query has to have given it."""

    @property
    def seen(self) -> Grounds | None:
        """What a query answered."""


class MethodResult(Protocol[R_co]):
    """What a method answered, and what that answer may claim."""

    @property
    def value(self) -> R_co:
        """What the method answered."""

    @property
    def viewstamp(self) -> Viewstamp:
        """Where the call, or for a query the last entry it saw, was ordered."""

    @property
    def position(self) -> int:
        """The place of `viewstamp` in the group's one order."""

    @property
    def standing(self) -> Standing:
        """Whether it may still be rolled back."""

    @property
    def has_changed(self) -> bool:
        """Whether the red answer before it was another one."""

    @property
    def age(self) -> float | None:
        """How many seconds old the state may be that a query saw; None if nobody can say."""

    @property
    def seen(self) -> Grounds | None:
        """Of a query: what an update can rest on."""

    async def settled(self) -> MethodResult[R_co]:
        """Wait until it cannot be rolled back any more, and give the last answer."""


class AsyncUpdate(Protocol[P, R_co]):
    """An update as an async client offers it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call it; the answer is to be awaited."""

    def detailed(
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, MethodResult[R_co]]:
        """Call it, and learn more than its answer."""

    def many(
        self, calls: Iterable[Sequence[object]]
    ) -> Coroutine[Any, Any, Sequence[R_co | Exception]]:
        """Call it with each of many lists of arguments; an exception stands for a failed call."""

    def options(
        self,
        *,
        deadline: float | None = None,
        majority: bool = False,
        colour: ColourName = "green",
        if_unchanged: Sequence[AnyResult] = (),
        on_reordered: Callable[[Any, Any], object] | None = None,
    ) -> AsyncUpdate[P, R_co]:
        """Give the same method with other choices; see `RemoteUpdate.options`."""


class AsyncQuery(Protocol[P, R_co]):
    """A query as an async client offers it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call it; the answer is to be awaited."""

    def detailed(
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, MethodResult[R_co]]:
        """Call it, and learn more than its answer."""

    def options(
        self,
        *,
        deadline: float | None = None,
        level: LevelName = "consistent",
        not_before: Viewstamp | None = None,
    ) -> AsyncQuery[P, R_co]:
        """Give the same method with another deadline (seconds), or another claim."""


class UpdateMark(Protocol[P, R_co]):
    """What `@update` makes of a method, to the type checker."""

    @overload
    def __get__(self, instance: None, owner: type) -> AsyncUpdate[P, R_co]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, R_co]: ...


class QueryMark(Protocol[P, R_co]):
    """What `@query` makes of a method, to the type checker."""

    @overload
    def __get__(self, instance: None, owner: type) -> AsyncQuery[P, R_co]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, R_co]: ...
