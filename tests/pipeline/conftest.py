"""One small Spark session for all tests here, and runs that several of them look at."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.pipeline.here import seal_here
from tests.pipeline.journals import OPTIMISTIC, SAFE, copy_group, make_group, storm

from coterie.checking.colours import ColoursTracker
from coterie.journal.retention import Retention
from coterie.kernel.clock import milliseconds, seconds
from coterie.llft.settings import Guard
from coterie.pipeline.lake.lake import Lake
from coterie.simulation import RunOptions
from coterie.simulation.campaign import run_seed
from coterie.simulation.engines.llft.clients import ProgramClients
from coterie.simulation.engines.llft.world import ProgramWorld
from coterie.simulation.engines.vsr.trial import TransactionOptions
from coterie.simulation.world.export import write_journals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BANK_SEED = 4
COLOURS_SEED = 3
PROGRAM_SEED = 4
COLOURS = "COLOURS:DYNSEQ:VSYNC"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests that need Spark run in one process, so that one session is started."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from coterie.pipeline.spark.session import SMALL, make_session  # noqa: PLC0415 -- slow to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own, at its start
        session = make_session(
            master="local[1]",
            settings={**SMALL, "spark.coterie.parts": "2", "spark.driver.memory": "512m"},
        )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def optimistic_journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five replicas of a ledger with optimistic delivery; some entries were rolled back."""
    folder = tmp_path_factory.mktemp("optimistic")
    for seed in range(3, 20):
        group = make_group(seed=seed, stack=OPTIMISTIC, names="abcde")
        storm(group, duration=seconds(6))
        assert not isinstance(group.tracker, ColoursTracker)
        if group.tracker.rolled_back:
            break
    else:
        pytest.fail("no run rolled anything back")
    group.check()
    copy_group(group, folder)
    return folder


@pytest.fixture(scope="session")
def counter_journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three replicas of a counter with safe delivery, used by clients with sessions."""
    folder = tmp_path_factory.mktemp("counter")
    group = make_group(seed=4, stack=SAFE, names="abc", has_object=True)
    storm(group)
    group.check()
    copy_group(group, folder)
    return folder


@pytest.fixture(scope="session")
def bank_journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three groups of three cohorts each, with machines that were lost."""
    folder = tmp_path_factory.mktemp("bank")
    faults = ("crash", "restart", "partition", "kill")
    options = TransactionOptions(
        duration=seconds(4), interval=milliseconds(60), faults=faults, journals=str(folder)
    )
    run = run_seed(BANK_SEED, options)
    assert run.violations == []
    assert run.figures["committed"] > 3
    assert run.views > 5
    return folder / str(BANK_SEED)


@pytest.fixture(scope="session")
def colours_journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four replicas over a partitioned network, with cuts and crashes."""
    folder = tmp_path_factory.mktemp("colours")
    options = RunOptions(
        stack=COLOURS,
        replicas=4,
        duration=seconds(6),
        faults=("partition", "isolation", "crash", "delay", "loss"),
        object="dictionary",
        journals=str(folder),
    )
    run = run_seed(COLOURS_SEED, options)
    assert not run.violations
    return folder / str(COLOURS_SEED)


@pytest.fixture(scope="session")
def program_journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journals of a program whose primary crashed once; nothing of them was removed."""
    world = ProgramWorld(seed=PROGRAM_SEED, program="counter", replicas=3, guard=Guard.QUORUM)
    world.journal = replace(world.journal, retention=Retention())
    clients = ProgramClients(world, world.simulation.random)
    world.start()
    clients.start()
    assert world.run_until(lambda: clients.answered > 30, within=seconds(10))
    [primary] = [each for each in world.replicas_of("counter") if each.leading is not None]
    world.machines[primary.me.id].restart()
    answered = clients.answered
    assert world.run_until(lambda: clients.answered > answered + 30, within=seconds(10))
    assert not world.trackers["counter"].finish()
    folder = tmp_path_factory.mktemp("program journals")
    write_journals(world.machines.values(), folder)
    return folder


@pytest.fixture(scope="session")
def _sealed(
    optimistic_journals: Path, counter_journals: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sealed")
    seal_here(optimistic_journals, folder / "optimistic", width=500)
    seal_here(counter_journals, folder / "counter", width=100)
    return {name: folder / name for name in ("optimistic", "counter")}


@pytest.fixture
def optimistic_lake(_sealed: dict[str, Path], tmp_path: Path) -> Lake:
    """A lake that the test may change."""
    return Lake.open(copytree(_sealed["optimistic"], tmp_path / "optimistic lake"))


@pytest.fixture
def counter_lake(_sealed: dict[str, Path], tmp_path: Path) -> Lake:
    """A lake that the test may change."""
    return Lake.open(copytree(_sealed["counter"], tmp_path / "counter lake"))
