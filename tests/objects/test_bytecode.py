"""Where an update has surely changed nothing, read from its compiled code.

Each method raises; whether it had changed something before is in its name. What is called clean
must be clean. What is clean should be called so, or the shape of code that users write most would
be slow to fail: such a shape is listed when it is recognised.
"""

from __future__ import annotations

import pytest
from tests.objects.shapes import Theatre

from coterie.objects import define, standing_in
from coterie.objects.code.raise_safety import was_clean

THEATRE = define(Theatre)
METHODS = sorted(method.name for method in THEATRE.methods.values() if method.name != "count")


@pytest.mark.parametrize("name", METHODS)
def test_what_is_called_clean_is_clean_and_common_shapes_are_called_so(name: str) -> None:
    made = THEATRE.make()
    before = THEATRE.canonical_state(made)
    method = THEATRE.method(name)

    with standing_in(), pytest.raises(Exception) as raised:  # noqa: PT011 -- any
        method.function(made)
    is_clean = was_clean(raised.value, method)
    has_changed = THEATRE.canonical_state(made) != before
    assert has_changed == name.startswith("dirty")
    assert is_clean == name.startswith("clean")
