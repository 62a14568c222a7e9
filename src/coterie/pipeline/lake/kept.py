"""A lake as it stands, for as long as nobody seals: what is read of it again is at hand.

Whoever finds out about a group asks for its small tables several times: for findings, for how
journals end, for what verdicts rest on. Each is a file for each segment, and opening a file costs
more than reading the few rows in it. So these files are remembered, the last ones used up to a
bound, so that a lake of any number of groups can be gone through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.pipeline.lake.lake import Lake

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

KEPT_BYTES = 64 << 20
"""How much of a lake is at hand, at most."""
FILE_BYTES_MAX = 1 << 20
"""A table that takes more than this is read again: opening its file is not what costs."""
_OVERHEAD_BYTES = 4096
"""What a small table costs beside its rows, about."""


class KeptLake(Lake):
    """Reads small files once. Tasks that get it begin with nothing at hand."""

    def __init__(self, root: str, width: int) -> None:
        super().__init__(root, width)
        self._kept: dict[Path, pa.Table] = {}
        self._bytes = 0

    def __reduce__(self) -> tuple[type[KeptLake], tuple[str, int]]:
        return KeptLake, (self.root, self.width)

    def read_file(self, path: Path, schema: pa.Schema) -> pa.Table:
        """Give all rows of a file, as it was when it was first asked for."""
        found = self._kept.pop(path, None)
        if found is None:
            found = super().read_file(path, schema)
            if found.nbytes > FILE_BYTES_MAX:
                return found
            self._bytes += found.nbytes + _OVERHEAD_BYTES
            while self._bytes > KEPT_BYTES and self._kept:
                oldest = self._kept.pop(next(iter(self._kept)))
                self._bytes -= oldest.nbytes + _OVERHEAD_BYTES
        self._kept[path] = found
        return found


def kept(lake: Lake) -> KeptLake:
    """Give a lake as it stands now."""
    return KeptLake(lake.root, lake.width)
