"""Groups over a partitioned network in the simulator: `--stack COLOURS:DYNSEQ:VSYNC`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from coterie.simulation.engines.stack import StackFamily

if TYPE_CHECKING:
    from coterie.simulation.engines.family import Asked, Extra
    from coterie.simulation.engines.stack.trial import RunOptions


class ColoursFamily(StackFamily):
    """Groups of the default stack of **transis**; `--stack` of the stacks takes all of them."""

    name = "colours"
    about = "COLOURS:DYNSEQ:VSYNC, over a partitioned network"
    extras: ClassVar[tuple[Extra, ...]] = ()
    objects: ClassVar[tuple[str, ...]] = ("counter", "dictionary", "tally")

    def options(self, asked: Asked) -> RunOptions:
        """Give the options of runs of that stack."""
        return super().options(asked._replace(extras={"stack": "COLOURS:DYNSEQ:VSYNC"}))
