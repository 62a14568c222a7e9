"""The layers there are, and how a stack is built from its name.

A stack is written top first, as in the papers: `TOKEN:VSYNC`. A wrong one is refused here, with
what is missing in the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import StackError
from coterie.kernel.replica import Replica, Top
from coterie.membership.vsync import Vsync
from coterie.ordering.dynseq import DynamicSequencer
from coterie.ordering.token import RotatingToken
from coterie.replication.layer import EngineTop
from coterie.replication.primary import PrimaryViews
from coterie.replication.safe import GlobalSafety
from coterie.replication.union import UnionViews

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.kernel.engine import EngineHost
    from coterie.kernel.layers import Application, Context, Layer, Service

LAYERS: dict[str, type[Layer]] = {
    layer.name: layer
    for layer in (
        *(Vsync, DynamicSequencer, RotatingToken),
        *(PrimaryViews, UnionViews, GlobalSafety),
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


def expand(stack: str) -> list[str]:
    """Give the names of a stack's layers, top first, with the paper's shorthand written out.

    PVSYNC means primary views, and those stand above the order: SAFE:TOKEN:PVSYNC is
    SAFE:PRIMARY:TOKEN:VSYNC. Alone it has no order, and its histories are sets: UNION:VSYNC.
    """
    names = stack.upper().split(":")
    if names[-1] != "PVSYNC":
        return names
    above = [name for name in names[:-1] if name == "SAFE"]
    below = [name for name in names[:-1] if name != "SAFE"]
    return [*above, "PRIMARY" if names[:-1] else "UNION", *below, "VSYNC"]


def parse_stack(stack: str, layers: Mapping[str, type[Layer]] = LAYERS) -> list[type[Layer]]:
    """Check the name of a stack and give its layers, top first."""
    names = expand(stack)
    unknown = [name for name in names if name not in layers]
    if unknown:
        raise StackError(
            f"{stack!r} names no layer {unknown[0]!r}; the layers are {', '.join(sorted(layers))}, "
            f"written top first, for example {STACKS[-1]}"
        )
    parsed = [layers[name] for name in names]
    if parsed[-1].needs:
        raise StackError(f"{stack!r} has no layer at its bottom: it must end in VSYNC")
    given: frozenset[Service] = parsed[-1].gives
    for layer in reversed(parsed[:-1]):
        if not layer.needs:
            raise StackError(
                f"{stack!r} has {layer.name} above other layers; it goes at the bottom"
            )
        missing = sorted(service.value for service in layer.needs - given)
        if missing:
            raise StackError(
                f"{stack!r} cannot work: {layer.name} needs {missing[0]}, "
                "which nothing below it gives"
            )
        given = layer.services(given)
    return parsed


def is_ordered(stack: str) -> bool:
    """Say whether a stack puts messages into one order."""
    return bool({"DYNSEQ", "TOKEN"} & set(expand(stack)))


def has_engine(stack: str) -> bool:
    """Say whether a stack keeps a history, so that a host stands on it."""
    return bool({"PRIMARY", "UNION"} & set(expand(stack)))


def build(
    stack: str,
    context: Context,
    application: Application,
    layers: Mapping[str, type[Layer]] = LAYERS,
) -> Replica:
    """Build a replica of group communication. *layers* lets tests put in variants of layers."""
    if has_engine(stack):
        raise StackError(f"{stack!r} keeps a history: it needs a host, not an application")
    return _build(stack, context, Top(context, application), layers)


def build_engine(
    stack: str,
    context: Context,
    host: EngineHost,
    layers: Mapping[str, type[Layer]] = LAYERS,
) -> Replica:
    """Build a replica that keeps a history and has *host* execute it."""
    if not has_engine(stack):
        raise StackError(
            f"{stack!r} keeps no history, so it cannot replicate an object: "
            f"choose one of {', '.join(ENGINE_STACKS)}"
        )
    context.recording = False  # entries are on record instead of messages
    return _build(stack, context, EngineTop(context, host), layers)


def _build(stack: str, context: Context, top: Layer, layers: Mapping[str, type[Layer]]) -> Replica:
    built = [layer(context) for layer in parse_stack(stack, layers)]
    bottom = built[-1]
    assert isinstance(bottom, Vsync)
    bottom.stack = stack.upper()
    return Replica(context, top, built, bottom)
