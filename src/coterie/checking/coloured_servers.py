"""What the checks of `coterie.checking.colours` know of replicas, attempts and exchanges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.kernel.components import ActionId, Component, Vulnerable
    from coterie.kernel.views import Member, ViewId


@dataclass(slots=True)
class Green:
    """An action in the global order."""

    id: ActionId
    digest: int
    component: ViewId
    """In which component it became green first."""


@dataclass(slots=True)
class KnownServer:
    """One replica, through all its lives."""

    life: Member | None = None
    end: int = 0
    """How many actions are green in the present life."""
    farthest: int = 0
    """How many ever were, in any life that was not lost."""
    cut: dict[Member, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    prim: Component | None = None
    state: str = ""
    view: ViewId | None = None
    members: tuple[Member, ...] = ()
    is_ending: bool = False
    is_zombie: bool = False
    has_been_ready: bool = False
    """Whether it ever said that it is ready for a primary component, since its disk was new."""
    must_protect: bool = False
    """Whether the next state that it forces must hold the record of its attempt."""
    doubt: Vulnerable | None = None
    """The attempt of which it does not know what came: it crashed in it, or was left in case ?."""


@dataclass(slots=True)
class Attempt:
    """What became of one attempt to install a primary component."""

    component: Component | None = None
    ready: set[str] = field(default_factory=set)
    installed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    """Who went through case 0."""
    left: dict[str, tuple[int, tuple[ActionId, ...]]] = field(default_factory=dict)
    """Who left it alive, with how many green actions, and which yellow ones."""


@dataclass(slots=True)
class Said:
    """What members said, or could have said, at the beginning of an exchange."""

    cuts: dict[Member, dict[Member, int]] = field(default_factory=dict)
    lines: dict[Member, dict[str, int]] = field(default_factory=dict)
