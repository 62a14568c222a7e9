"""How a method's failure travels under viewstamped replication: as the text of its error.

An error that the class declares has its fields beside the text
(`coterie.objects.classes.declared`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.decoding import Decoder
from coterie.objects.classes.encodable import as_text, encode
from coterie.objects.errors import MethodFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.objects.classes.declared import DeclaredErrors

ERROR_CHARS_MAX = 2000
"""How much of the text of an exception its caller is told."""

_read: Callable[[bytes], str | tuple[str, bytes]] = Decoder(str | tuple[str, bytes]).decode


def encode_failure(error: BaseException, errors: DeclaredErrors) -> bytes:
    """Give what the caller of a method that raised is told."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 -- the user's own __str__
        message = ""
    text = as_text(f"{type(error).__name__}: {message[:ERROR_CHARS_MAX]}")
    fields = errors.fields_of(error)
    return encode((text, fields)) if fields else encode(text)


def read_failure(data: bytes) -> MethodFailed:
    """Read what the caller of a method that raised was told."""
    told = _read(data)
    text, fields = (told, b"") if isinstance(told, str) else told
    error, _, message = text.partition(": ")
    return MethodFailed(error, message, fields=fields)
