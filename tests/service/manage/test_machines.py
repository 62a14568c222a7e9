"""The manager on five hosts, each in a network namespace of its own."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.service.manage.machines import CALLED, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long  # real processes in namespaces of their own, for two minutes
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
def test_hosts_die_disks_are_lost_and_the_manager_is_cut_off_and_killed(tmp_path: Path) -> None:
    found = run(tmp_path)
    fences = [each["fence"] for each in found["orders"]]
    assert fences == sorted(fences), "one acts: no order of a lower fence after a higher one"
    assert len(set(fences)) > 2, "others acted, too"
    for group in CALLED:
        totals = [each["total"] for each in found["calls"][group] if "total" in each]
        assert totals == sorted(set(totals)), "each call was done once, and none was lost"
        assert len(totals) > 100
        unknown = len(found["calls"][group]) - len(totals)
        assert totals[-1] <= len(totals) + unknown
