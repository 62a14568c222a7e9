"""What the service knows of each engine family: how it is hosted, and how clients reach it.

    find_family("vsr").check(group)

A *family* is one way to replicate, with everything the rest of the service asks of it
(`coterie.service.engines.family`). A group names its family in its configuration; `find_family`
finds it, and nobody else in the service knows one from the other. Journals, the pipeline, the
simulator and clients have registries of their own, with the same keys.

A family of your own is one more line here, or in a program that runs the service:

    FAMILIES["mine"] = MyFamily

Modules of families are imported when a group first needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.service.engines.family import Family

DEFAULT_FAMILY = "stack"


def _stack() -> Family:
    from coterie.service.engines.stack_family import StackFamily  # noqa: PLC0415 -- see above

    return StackFamily()


def _colours() -> Family:
    from coterie.service.engines.colours_family import ColoursFamily  # noqa: PLC0415 -- see above

    return ColoursFamily()


def _vsr() -> Family:
    from coterie.service.engines.vsr_family import VsrFamily  # noqa: PLC0415 -- see above

    return VsrFamily()


FAMILIES: dict[str, Callable[[], Family]] = {
    "colours": _colours,
    "stack": _stack,
    "vsr": _vsr,
}
"""By the word that a group's configuration has for it, what gives the family."""


def find_family(name: str, stack: str = "") -> Family:
    """Give the family of that name; raises `CoterieError` if there is none.

    A stack belongs to its top layer where that has a family of its own.
    """
    top = stack.partition(":")[0].lower()
    if name == DEFAULT_FAMILY and top in FAMILIES:
        name = top
    if name not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise CoterieError(f"there is no engine {name!r}; there is {known}")
    return FAMILIES[name]()
