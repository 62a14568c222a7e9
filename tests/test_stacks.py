"""Stacks: the right ones are built, the wrong ones refused in one sentence."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernel.surroundings import bare_context

from coterie.kernel.errors import StackError
from coterie.kernel.layers import Layer, Service
from coterie.simulation.host import Inbox
from coterie.stacks import LAYERS, STACKS, build, parse_stack

GROUP_COMMUNICATION = {name: LAYERS[name] for name in ("VSYNC", "DYNSEQ", "TOKEN")}


def refusal(stack: str, layers: dict[str, type[Layer]] = GROUP_COMMUNICATION) -> str:
    with pytest.raises(StackError) as caught:
        parse_stack(stack, layers)
    return str(caught.value)


def is_one_sentence(text: str, stack: str) -> bool:
    return (
        text.startswith(repr(stack))
        and "\n" not in text
        and ". " not in text
        and not text.endswith(".")
    )


@pytest.mark.parametrize("stack", STACKS)
def test_a_right_stack_is_built_top_first(stack: str) -> None:
    context, _ = bare_context()
    replica = build(stack, context, Inbox())
    assert ":".join(layer.name for layer in replica.layers) == stack
    for upper, lower in pairwise(replica.layers):
        assert upper.below is lower
        assert lower.above is upper


def test_a_stack_may_be_written_in_small_letters() -> None:
    assert parse_stack("token:vsync") == parse_stack("TOKEN:VSYNC")


@pytest.mark.parametrize("length", [1, 2, 3])
def test_of_all_combinations_only_those_listed_are_built(length: int) -> None:
    names = [*GROUP_COMMUNICATION, ""]
    for chosen in product(names, repeat=length):
        stack = ":".join(chosen)
        if stack in STACKS:
            assert [layer.name for layer in parse_stack(stack)] == list(chosen)
        else:
            assert is_one_sentence(refusal(stack), stack)


@pytest.mark.parametrize(
    ("stack", "sentence"),
    [
        pytest.param(
            "DYNSEQ:TOKEN:VSYNC",
            "'DYNSEQ:TOKEN:VSYNC' cannot work: DYNSEQ needs reliable multicast, first in first out "
            "per sender, which nothing below it gives",
            id="missing-service",
        ),
        pytest.param(
            "TOKEN",
            "'TOKEN' has no layer at its bottom: it must end in VSYNC",
            id="no-bottom",
        ),
        pytest.param(
            "VSYNC:VSYNC",
            "'VSYNC:VSYNC' has VSYNC above other layers; it goes at the bottom",
            id="bottom-on-top",
        ),
        pytest.param(
            "TOKN:VSYNC",
            "'TOKN:VSYNC' names no layer 'TOKN'; the layers are DYNSEQ, TOKEN, VSYNC, written top "
            "first, for example TOKEN:VSYNC",
            id="unknown",
        ),
        pytest.param(
            "",
            "'' names no layer ''; the layers are DYNSEQ, TOKEN, VSYNC, written top first, for "
            "example TOKEN:VSYNC",
            id="empty",
        ),
    ],
)
def test_a_wrong_stack_is_told_what_is_wrong(stack: str, sentence: str) -> None:
    assert refusal(stack) == sentence


services = st.frozensets(st.sampled_from(Service))


@given(st.lists(st.tuples(services.filter(bool), services), max_size=3), services)
@settings(max_examples=60)
def test_a_missing_service_is_named_with_the_layer_that_needs_it(
    upper: list[tuple[frozenset[Service], frozenset[Service]]], given_by_bottom: frozenset[Service]
) -> None:
    """Any layers with any needs: a stack is right if each finds all it needs right below it."""

    class Bottom(Layer):
        name = "BOTTOM"
        gives = given_by_bottom

    layers: dict[str, type[Layer]] = {"BOTTOM": Bottom}
    for place, (needed, offered) in enumerate(upper):
        layers[f"L{place}"] = type(
            f"L{place}", (Layer,), {"name": f"L{place}", "needs": needed, "gives": offered}
        )
    names = [f"L{place}" for place in range(len(upper))]
    stack = ":".join([*names, "BOTTOM"])
    provided = [*(offered for _, offered in upper[1:]), given_by_bottom]
    lacking = {
        name: needed - below
        for name, (needed, _), below in zip(names, upper, provided, strict=False)
    }
    wrong = [name for name in names if lacking[name]]
    if not wrong:
        assert parse_stack(stack, layers) == [layers[name] for name in [*names, "BOTTOM"]]
        return
    sentence = refusal(stack, layers)
    lowest = wrong[-1]
    assert any(
        f"{lowest} needs {service.value}, which nothing below it gives" in sentence
        for service in lacking[lowest]
    )
    assert is_one_sentence(sentence, stack)
