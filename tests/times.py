"""Where the time of a run went, by folder: for `pytest --times`, as `./check` runs it.

It is told at the end, whether all went well or not. Where nobody looks at a terminal, a line every
now and then says how far the run has come.
"""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

SLOWEST = 10
QUIET_SECONDS = 30.0
NAMED_MAX = 10
"""How many tests that failed are named in the command that repeats them."""


class Times:
    """Adds up, in the main process, what the tests took: setting up, running, tidying up."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._begun = self._spoken = time.monotonic()
        self._tests: dict[str, float] = {}
        self._workers: dict[str, float] = {}
        self._failed: dict[str, None] = {}
        self._collected = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected = len(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected = self._collected or len(session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        new = report.failed and report.nodeid not in self._failed
        self.add(report)
        if self._terminal.isatty:
            return  # pytest's own words are enough there
        if new:
            # Long before the end, when pytest tells the rest.
            self._terminal.write_line(f"\n{failure(report)}", flush=True)
        now = time.monotonic()
        if now - self._spoken >= QUIET_SECONDS:
            self._spoken = now
            self._terminal.write_line(
                f"\n{now - self._begun:.0f} s: {len(self._tests)} of {self._collected} tests, "
                f"{len(self._failed)} failed",
                flush=True,
            )

    def add(self, report: pytest.TestReport) -> None:
        """Take the report of a part of a test."""
        self._tests[report.nodeid] = self._tests.get(report.nodeid, 0.0) + report.duration
        worker: str = getattr(report, "worker_id", "")
        self._workers[worker] = self._workers.get(worker, 0.0) + report.duration
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        for line in self.lines():
            terminalreporter.write_line(line)

    @property
    def _terminal(self) -> TerminalReporter:
        found: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        assert found is not None
        return found

    def lines(self) -> list[str]:
        """The tables, and how to repeat what failed."""
        folders: dict[str, list[float]] = {}
        for id, seconds in self._tests.items():
            folders.setdefault(folder_of(id), []).append(seconds)
        total = sum(self._tests.values()) or 1.0
        lines = ["", "Where the time went:", f"  {'':<16} tests  seconds"]
        for folder, took in sorted(folders.items(), key=lambda each: -sum(each[1])):
            share = sum(took) / total
            lines.append(f"  {folder:<16} {len(took):5}  {sum(took):7.1f}  {share:4.0%}")
        if len(self._workers) > 1:
            busy = ", ".join(f"{name} {took:.0f} s" for name, took in sorted(self._workers.items()))
            lines.append(f"  in parallel: {busy}")
        lines += ["", "The slowest tests:"]
        slowest = sorted(self._tests.items(), key=lambda each: -each[1])[:SLOWEST]
        lines += [f"  {seconds:7.1f} s  {id}" for id, seconds in slowest]
        if self._failed:
            ids = list(self._failed) if len(self._failed) <= NAMED_MAX else ["--last-failed"]
            lines += ["", f"To repeat what failed: .venv/bin/pytest {shlex.join(ids)}"]
        return lines


def failure(report: pytest.TestReport) -> str:
    """Say in a line which part of which test failed, and by what."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = "" if crash is None else crash.message.partition("\n")[0]
    return f"FAILED in {report.when}: {report.nodeid}: {message}"


def folder_of(id: str) -> str:
    """Give the folder below tests/ that a test belongs to."""
    parts = id.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else "tests"
