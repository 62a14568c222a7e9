"""Settings for all tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from tests import hang_guard
from tests.spread import Spreading, Telling
from tests.times import Times

from coterie.service.operate.founding import PORTS

if TYPE_CHECKING:
    import pytest

FIRST_PORT, LAST_PORT = 10_000, 29_999  # below those of outgoing connections

# The same examples on every run, or a red check would not be the change's doing; no deadline and
# no complaint about slow examples, because a shared machine is sometimes slow. No database: what is
# remembered is not repeatable.
settings.register_profile(
    "coterie",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("coterie")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", action="store_true", help="tell at the end where the time went")
    parser.addoption(
        "--record-figures",
        action="store_true",
        help="write tests/papers/figures anew, because a protocol was changed on purpose",
    )


def share_ports(workerinput: dict[str, str]) -> None:
    """Give each process ports of its own.

    A test notes ports, and has replicas listen there some time later, or again: a test at its side
    must not be given the same ones meanwhile.
    """
    place, count = int(workerinput["workerid"].removeprefix("gw")), int(workerinput["workercount"])
    share = (LAST_PORT + 1 - FIRST_PORT) // count
    first = FIRST_PORT + place * share
    os.environ[PORTS] = f"{first}-{first + share - 1}"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(hang_guard)
    workerinput: dict[str, str] | None = getattr(config, "workerinput", None)
    if workerinput is not None:
        config.pluginmanager.register(Telling(workerinput))
        share_ports(workerinput)
        return
    config.pluginmanager.register(Spreading())
    if config.getoption("times"):
        config.pluginmanager.register(Times(config))
