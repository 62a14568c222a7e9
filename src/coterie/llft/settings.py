"""Every limit and interval of leader and followers, in one place."""

from __future__ import annotations

import enum

import msgspec

from coterie.kernel.clock import Duration, milliseconds, seconds


class Guard(enum.StrEnum):
    """Who must agree before a replica may lead."""

    QUORUM = "quorum"
    """The edge and one replica: what clients have seen is never given up."""
    NONE = "none"
    """Nobody, as published: the newest backup, cut off alone, leads itself, and when the cut heals
    its claim may erase what all others have done and clients have seen."""


class Backups(enum.StrEnum):
    """What backups do with orders."""

    ACTIVE = "active"
    """They execute them (the paper's semi-active)."""
    LOGGED = "logged"
    """They keep them, and the states that the primary sends; who is to lead executes the rest."""


class LlftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals are durations in microseconds; sizes are bytes."""

    guard: Guard = Guard.QUORUM
    backups: Backups = Backups.ACTIVE
    beat: Duration = milliseconds(50)
    """How often everybody tells how far it is, and asks again for what it lacks."""
    suspect_after: Duration = milliseconds(400)
    """A primary that has said nothing for so long is suspected by the backup of rank 2."""
    rank_step: Duration = milliseconds(200)
    """How much longer each further rank waits."""
    vouch: Duration = milliseconds(300)
    """Who has heard of its primary more recently declines other claims."""
    resend_max: int = 3
    """How often a proposal is sent again before those count who answered."""
    patience: Duration = milliseconds(600)
    """Without a guard: how long recovery waits for a silent edge."""
    edge_patience: Duration = seconds(2)
    """With a standby: how long an edge is silent before another takes its place."""
    vote_patience: Duration = seconds(3)
    """How long who voted for another edge waits for it, before it asks it never to begin."""
    recovery_max: Duration = seconds(3)
    """How long a proposer may take to recover before it lets others try."""
    remove_after: Duration = milliseconds(1500)
    """A backup that is silent for so long is removed."""
    lag_max: int = 512
    """How many orders a backup may be behind before the primary waits for it."""
    lag_patience: Duration = seconds(2)
    """How long the primary waits for one that is behind, before it removes it."""
    unstored_max: int = 256
    """How many orders may wait for the edge; then the program waits."""
    stall_max: Duration = seconds(2)
    """A program that makes no step for so long, though it could, is hung: its replica resigns."""
    batch: int = 64
    """How many orders one turn makes at most, and one message carries."""
    window: int = 4096
    """How many bytes of output of one connection may wait, and as many of input."""
    state_every: int = 128
    """After so many orders the state is kept, and what lies before it can be freed."""
    keep_orders: int = 64
    """How many freed orders the edge keeps for those who come back."""


DEFAULT = LlftSettings()
