"""What the papers report, as far as their text gives numbers."""

from __future__ import annotations

from typing import NamedTuple


class PaperFigures(NamedTuple):
    """What the paper measured, as the two ends of a range: with 2 members, and with 5."""

    name: str
    latency_ms: tuple[float, float]
    messages_per_member: tuple[int, int]


PAPER = "objects, section 6.2: Sparc 10/20, 10 Mbit/s Ethernet"
PAPER_MEMBERS = (2, 5)
PAPER_FIGURES = {
    "VSYNC": PaperFigures("PVSYNC", (1.6, 5.9), (14_666, 5_918)),
    "DYNSEQ:VSYNC": PaperFigures("DYNSEQ:PVSYNC", (2.6, 12.2), (6_683, 2_915)),
    "TOKEN:VSYNC": PaperFigures("TOKEN:PVSYNC", (4.7, 13.3), (3_865, 1_776)),
    "PVSYNC": PaperFigures("PVSYNC", (1.6, 5.9), (14_666, 5_918)),
    "DYNSEQ:PVSYNC": PaperFigures("DYNSEQ:PVSYNC", (2.6, 12.2), (6_683, 2_915)),
    "TOKEN:PVSYNC": PaperFigures("TOKEN:PVSYNC", (4.7, 13.3), (3_865, 1_776)),
    "SAFE:DYNSEQ:PVSYNC": PaperFigures("SAFE:DYNSEQ:PVSYNC", (4.5, 48.8), (4_909, 1_271)),
    "SAFE:TOKEN:PVSYNC": PaperFigures("SAFE:TOKEN:PVSYNC", (4.9, 22.3), (5_787, 2_110)),
}
"""The paper's figures by our stack. The paper's stacks have a layer for primary views, which stacks
of group communication alone lack."""
