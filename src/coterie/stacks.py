"""The layers there are, and how a stack is built from its name.

A stack is written top first, as in the papers: `TOKEN:VSYNC`. A wrong one is refused here, with
what is missing in the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from coterie.bypass import bypass_of
from coterie.colours.layer import Colours
from coterie.kernel.errors import StackError
from coterie.kernel.layers import Service
from coterie.kernel.replica import Replica, Top
from coterie.membership.vsync import Vsync
from coterie.ordering.dynseq import DynamicSequencer
from coterie.ordering.token import RotatingToken
from coterie.replication.layer import EngineTop
from coterie.replication.onus import Onus
from coterie.replication.primary import PrimaryViews
from coterie.replication.safe import GlobalSafety
from coterie.replication.union import UnionViews

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coterie.kernel.engine import EngineHost, HistoryKeeper
    from coterie.kernel.layers import Application, Context, Layer
    from coterie.kernel.replica import Bottom

LAYERS: dict[str, type[Layer]] = {
    layer.name: layer
    for layer in (
        *(Vsync, DynamicSequencer, RotatingToken),
        *(PrimaryViews, UnionViews, GlobalSafety),
        *(Onus, Colours),
    )
}

STACKS = ("VSYNC", "DYNSEQ:VSYNC", "TOKEN:VSYNC")
"""The stacks of group communication alone."""

ENGINE_STACKS = (
    "PVSYNC",
    "DYNSEQ:PVSYNC",
    "TOKEN:PVSYNC",
    "SAFE:DYNSEQ:PVSYNC",
    "SAFE:TOKEN:PVSYNC",
)
"""The stacks of **objects**, figure 4, as the paper writes them."""

DEFAULT_STACK = "SAFE:DYNSEQ:PVSYNC"
"""What keeps an object together where nobody says it: every answer is authoritative."""

COLOURS_STACKS = ("COLOURS:DYNSEQ:VSYNC", "COLOURS:TOKEN:VSYNC")
"""The stacks of **transis**: every side of a partition takes updates."""

SERVER_STACKS = ("ONUS:SAFE:DYNSEQ:PVSYNC", "ONUS:SAFE:TOKEN:PVSYNC")
"""The stacks of **rsp**: clients that know nothing of replication."""

_ABOVE_PRIMARY = ("ONUS", "SAFE")

OBJECT_STACKS = (DEFAULT_STACK, *(stack for stack in ENGINE_STACKS if stack != "PVSYNC"))
"""The stacks that any class can stand on, the best to advise first."""


def expand(stack: str) -> list[str]:
    """Give the names of a stack's layers, top first, with the paper's shorthand written out.

    PVSYNC means primary views, and those stand above the order: SAFE:TOKEN:PVSYNC is
    SAFE:PRIMARY:TOKEN:VSYNC. Alone it has no order, and its histories are sets: UNION:VSYNC.
    """
    names = stack.upper().split(":")
    if names[-1] != "PVSYNC":
        return names
    above = [name for name in names[:-1] if name in _ABOVE_PRIMARY]
    below = [name for name in names[:-1] if name not in _ABOVE_PRIMARY]
    return [*above, "PRIMARY" if names[:-1] else "UNION", *below, "VSYNC"]


def parse_stack(
    stack: str,
    layers: Mapping[str, type[Layer]] = LAYERS,
    examples: Sequence[str] = (DEFAULT_STACK, *ENGINE_STACKS, *reversed(STACKS)),
) -> list[type[Layer]]:
    """Check the name of a stack and give its layers, top first; raises `StackError`.

    *examples* are what the caller would take, best first: its own refusal of what was advised here
    would be the worse for it.
    """
    names = expand(stack)
    fault = _fault(names, layers)
    if fault is not None:
        written = (
            repr(stack) if names == stack.upper().split(":") else f"{stack!r} ({_shown(names)})"
        )
        raise StackError(f"{written} {fault.sentence}{_example(fault.layer, layers, examples)}")
    return [layers[name] for name in names]


class _Fault(NamedTuple):
    """What is wrong with a stack, and with which layer of it."""

    sentence: str
    layer: str = ""


def _fault(names: list[str], layers: Mapping[str, type[Layer]]) -> _Fault | None:
    """Find what is wrong with a stack, if anything is."""
    for name in names:
        if name not in layers:
            known = ", ".join(sorted(layers))
            return _Fault(f"names no layer {name!r}; the layers are {known}, written top first")
    parsed = [layers[name] for name in names]
    if parsed[-1].needs:
        bottoms = _either(layer.name for layer in layers.values() if not layer.needs)
        return _Fault(f"has no layer at its bottom: it must end in {bottoms}", parsed[-1].name)
    given: frozenset[Service] = parsed[-1].gives
    for layer in reversed(parsed[:-1]):
        if not layer.needs:
            return _Fault(f"has {layer.name} above other layers: it goes at the bottom", layer.name)
        missing = sorted(layer.needs - given, key=lambda service: service.value)
        if missing:
            sentence = (
                f"cannot work: {layer.name} needs {missing[0].value}, which nothing below it gives"
            )
            givers = _either(
                each.name
                for each in layers.values()
                if missing[0] in each.gives - each.needs  # who makes it, and does not pass it on
            )
            return _Fault(f"{sentence}; {givers} does" if givers else sentence, layer.name)
        given = layer.services(given)
    return None


def _example(layer: str, layers: Mapping[str, type[Layer]], examples: Sequence[str]) -> str:
    """Name a stack of these layers that would be accepted, if there is one; best with *layer*."""
    right = [stack for stack in examples if _fault(expand(stack), layers) is None]
    right.sort(key=lambda stack: layer not in expand(stack))  # which keeps the order otherwise
    return f", for example {right[0]}" if right else ""


def _either(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))


def _shown(names: list[str]) -> str:
    """Write a stack as it is meant; what was typed may hold what cannot be shown."""
    return ":".join(names).encode("unicode_escape").decode()


def is_ordered(stack: str, layers: Mapping[str, type[Layer]] = LAYERS) -> bool:
    """Say whether a stack puts messages into one order."""
    return _gives(stack, Service.TOTAL_ORDER, layers)


def has_engine(stack: str, layers: Mapping[str, type[Layer]] = LAYERS) -> bool:
    """Say whether a stack keeps a history, so that a host stands on it."""
    return _gives(stack, Service.HISTORY, layers)


def is_globally_safe(stack: str, layers: Mapping[str, type[Layer]] = LAYERS) -> bool:
    """Say whether a stack delivers only what a majority has: nothing is ever rolled back."""
    return _gives(stack, Service.GLOBAL_SAFETY, layers)


def serves_datagrams(stack: str) -> bool:
    """Say whether clients that know nothing of replication are served."""
    return Onus.name in expand(stack)


def is_partitioned(stack: str) -> bool:
    """Say whether every side of a partition takes updates: then answers have colours."""
    return Colours.name in expand(stack)


def _gives(stack: str, service: Service, layers: Mapping[str, type[Layer]]) -> bool:
    """Say whether some layer of a stack gives a service, whichever it is."""
    return any(service in layer.gives for layer in parse_stack(stack, layers))


def build(
    stack: str,
    context: Context,
    application: Application,
    layers: Mapping[str, type[Layer]] = LAYERS,
) -> Replica:
    """Build a replica of group communication. *layers* lets tests put in variants of layers."""
    if has_engine(stack, layers):
        raise StackError(f"{stack!r} keeps a history: it needs a host, not an application")
    return _build(stack, context, Top(context, application), layers)


def build_engine(
    stack: str,
    context: Context,
    host: EngineHost,
    layers: Mapping[str, type[Layer]] = LAYERS,
) -> Replica:
    """Build a replica that keeps a history and has *host* execute it."""
    if not has_engine(stack, layers):
        raise StackError(
            f"{stack!r} keeps no history, so it cannot replicate an object: "
            f"choose one of {', '.join(ENGINE_STACKS)}"
        )
    context.recording = False  # entries are on record instead of messages
    return _build(stack, context, EngineTop(context, host), layers)


def _build(stack: str, context: Context, top: Layer, layers: Mapping[str, type[Layer]]) -> Replica:
    context.stack = stack.upper()
    built = [layer(context) for layer in parse_stack(stack, layers)]
    # The layer that needs nothing below it: it speaks to the process, whichever it is.
    bottom = cast("Bottom", built[-1])
    keepers = [layer for layer in built if Service.HISTORY in layer.gives]
    history = cast("HistoryKeeper", keepers[0]) if keepers else None
    replica = Replica(context, top, built, bottom, history)
    replica.bypass = bypass_of(top, built)
    return replica
