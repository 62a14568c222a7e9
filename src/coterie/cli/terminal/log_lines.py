"""Where the log of a command goes: lines for people, or JSON for machines."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coterie.runtime.events import logger

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def logging_lines(*, as_json: bool, level: int = logging.WARNING) -> Iterator[None]:
    """Have events written to the error stream as long as the block lasts."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    logger.addHandler(handler)
    logger.propagate = False
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.propagate = True
        logger.removeHandler(handler)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"coterie: {record.getMessage()}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        name = getattr(record, "event", record.getMessage())
        line = {"log": name, "level": record.levelname.lower(), "at": record.created, **fields}
        return json.dumps(line, default=str)
