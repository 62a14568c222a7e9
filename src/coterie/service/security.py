"""What the configuration says about security, made ready for use."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.runtime.events import log
from coterie.runtime.security import (
    Security,
    SecurityError,
    TlsFiles,
    is_readable_by_others,
    read_secret,
)

if TYPE_CHECKING:
    from coterie.service.config import SecurityConfig

LOOK_SECONDS = 5.0
"""How often certificates are looked at for changes."""


def load_security(config: SecurityConfig) -> Security:
    """Read the secret and the certificates; raises `SecurityError`."""
    secret = None
    if config.secret_file:
        path = Path(config.secret_file)
        secret = read_secret(path)
        if is_readable_by_others(path):
            log(
                logging.WARNING,
                "secret readable by others",
                file=str(path),
                advice=f"chmod 600 {path}",
            )
    tls = None
    if config.certificate:
        tls = TlsFiles(Path(config.certificate), Path(config.key), Path(config.authority))
    return Security(secret=secret, tls=tls)


async def keep_certificates_fresh(tls: TlsFiles) -> None:
    """Take up changed certificates, for ever; files that cannot be used leave the old ones."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            if tls.reload():
                log(logging.INFO, "certificates reloaded")
        except SecurityError as error:
            log(logging.WARNING, "certificates not reloaded", reason=str(error))
