"""Reading annotations: the one place, so that what cannot be read is said alike everywhere."""

from __future__ import annotations

import typing

from coterie.objects.errors import NotReplicable


def read_annotations(where: str, of: object, whose: str = "its annotations") -> dict[str, object]:
    """Give the annotations of a class or function by name, with notes.

    Raises `NotReplicable`, which begins with *where*, if one of them names what is not there.
    """
    try:
        return typing.get_type_hints(of, include_extras=True)
    except Exception as error:
        raise NotReplicable(
            f"{where}: {whose} cannot be read ({error}): import what they name, not only for the"
            " type checker"
        ) from error
