"""What a cohort of viewstamped replication and its journal hand to each other.

The journal knows nothing of the engine and the engine nothing of disks, so the values that pass
between them stand here, as `Past` does for the engines that order entries.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from coterie.kernel.decoding import Int64
from coterie.kernel.views import NO_VIEW, ViewId, Viewstamp


class CohortViews(msgspec.Struct, frozen=True, array_like=True):
    """What a cohort must never forget, whatever becomes of its state (**vsr** section 4)."""

    max_viewid: ViewId = NO_VIEW
    """The highest view it may have promised (design 10 f)."""
    cur_viewid: ViewId = NO_VIEW
    """The last view it was active in."""
    led: ViewId = NO_VIEW
    """The last view it was the primary of."""

    @property
    def is_active(self) -> bool:
        """Whether it was active in its view when this was written: it promised no later one."""
        return self.cur_viewid == self.max_viewid != NO_VIEW

    def promised(self, view: ViewId) -> CohortViews:
        """Give what holds after an invitation to *view* was made or accepted."""
        if view <= self.max_viewid:
            return self
        return CohortViews(view, self.cur_viewid, self.led)

    def started(self, view: ViewId, *, is_primary: bool) -> CohortViews:
        """Give what holds once the cohort is active in *view*."""
        if view <= self.cur_viewid:
            return self
        return CohortViews(max(view, self.max_viewid), view, view if is_primary else self.led)


class EventSpan(NamedTuple):
    """Consecutive events of one view, the first of them numbered `first`."""

    view: ViewId
    first: Int64
    events: list[bytes]

    @property
    def last(self) -> Viewstamp:
        """Where the last event stands."""
        return Viewstamp(self.view, self.first + len(self.events) - 1)
