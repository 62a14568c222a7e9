"""The layers there are, and how a stack is built from its name.

A stack is written top first, as in the papers: `TOKEN:VSYNC`. A wrong one is refused here, with
what is missing in the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import StackError
from coterie.kernel.replica import Replica
from coterie.membership.vsync import Vsync
from coterie.ordering.dynseq import DynamicSequencer
from coterie.ordering.token import RotatingToken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.kernel.layers import Application, Context, Layer, Service

LAYERS: dict[str, type[Layer]] = {
    layer.name: layer for layer in (Vsync, DynamicSequencer, RotatingToken)
}

STACKS = ("VSYNC", "DYNSEQ:VSYNC", "TOKEN:VSYNC")
"""The stacks that make sense at present, for help texts and for campaigns over all of them."""


def parse_stack(stack: str, layers: Mapping[str, type[Layer]] = LAYERS) -> list[type[Layer]]:
    """Check the name of a stack and give its layers, top first."""
    names = stack.upper().split(":")
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
        given = layer.gives
    return parsed


def build(
    stack: str,
    context: Context,
    application: Application,
    layers: Mapping[str, type[Layer]] = LAYERS,
) -> Replica:
    """Build a replica with this stack. *layers* lets tests put in variants of layers."""
    built = [layer(context) for layer in parse_stack(stack, layers)]
    bottom = built[-1]
    assert isinstance(bottom, Vsync)
    bottom.stack = stack.upper()
    replica = Replica(context, built, bottom, application)
    for layer in built:
        layer.assembled()
    return replica
