"""Every limit and interval of the group-communication layers, in one place.

Each has a default that suits replicas on one local network. All members of a group should use
the same settings; nothing unsafe happens if they do not, but time-outs may disagree.
"""

from __future__ import annotations

import msgspec

from coterie.kernel.clock import Duration, milliseconds, seconds


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals are durations in microseconds; sizes are bytes."""

    # Failure detection, per pair of processes.
    heartbeat_interval: Duration = milliseconds(50)
    """How often a process tells every peer that it lives and whom it hears."""
    suspect_after_min: Duration = milliseconds(200)
    """A peer is never suspected for a silence shorter than this."""
    suspect_after_max: Duration = seconds(2)
    """A peer silent for this long is always suspected, however irregular it used to be."""

    # Membership.
    alive_interval: Duration = milliseconds(100)
    """How often the contact of a view tells the rest of the group that the view exists."""
    merge_gather: Duration = milliseconds(10)
    """How long a proposer waits for further merge requests after the first."""
    merge_timeout: Duration = milliseconds(400)
    """How long a contact that asked for a merge waits before it may ask again."""
    flush_resend: Duration = milliseconds(40)
    """How often the messages of a view change are repeated while unanswered."""
    flush_timeout: Duration = milliseconds(200)
    """How long a proposer waits for a member that does not answer, before going on without."""
    proposer_patience: Duration = milliseconds(500)
    """How long a member waits for another's view change before it starts its own."""
    shun_min: Duration = milliseconds(300)
    """How long a member that did not answer is left out; doubles each time in a row."""
    shun_max: Duration = seconds(3)
    """The longest a silent member is left out before it is tried again."""

    # Reliable multicast.
    ack_delay: Duration = milliseconds(20)
    """How long a receiver may keep an acknowledgement that nobody is in a hurry for."""
    repair_delay: Duration = milliseconds(10)
    """How long a gap may last before the missing packets are asked for, and asked for again."""
    advertise_interval: Duration = milliseconds(100)
    """How often a member with unstable packets repeats what it has sent and received."""
    repair_packets_max: int = 256
    """How many packets one repair request or one answer to it may cover."""
    window_packets: int = 512
    """How many packets a member may have on the way that not all members have acknowledged."""
    window_bytes: int = 4 << 20
    """How many bytes of payload a member may have on the way that not all members have
    acknowledged: at the limit casts wait in the backlog."""
    backlog_bytes: int = 16 << 20
    """How many bytes of casts may wait for the window; beyond it a cast is refused."""
    early_packets_max: int = 256
    """How many messages of a view that is about to be installed here are kept for it."""

    # Sizes.
    payload_bytes_max: int = 1 << 20
    """The largest single message; a larger one is refused to its sender."""
    packet_bytes_max: int = 256 << 10
    """Messages are packed up to this size; one larger message travels alone."""
    packet_messages_max: int = 8192
    """How many messages are packed together at most: even an empty one takes a byte."""
    turn_packets: int = 32
    """How many packets one turn, or one visit of the token, makes of what waits."""
    frame_bytes_max: int = 8 << 20
    """The largest frame; what a turn sends to one peer is split into frames below it."""

    # The history.
    history_bytes: int = 32 << 20
    """How many bytes of settled entries are kept for replicas that come back; older ones are
    in the state only, which is then sent whole."""
    red_bytes_max: int = 256 << 20
    """How many bytes of actions may wait at a replica, outside of a primary component, for one to
    order them (engine COLOURS); beyond it a request is refused."""
    primary_min: int = 2
    """How many members a primary component has at least, if the group has as many (engine
    COLOURS). With 1 it may shrink to one replica, whose disk is then the only place of what it
    makes green."""
    past_lives_max: int = 64
    """How many lives of replicas that are over may be named in what replicas tell each other of
    their actions (engine COLOURS); beyond it they are taken out, as soon as all replicas are in
    one primary component."""
    announce_delay: Duration = milliseconds(5)
    """How long members that wait for nothing may stay behind in what they know to be settled."""
    transfer_resend: Duration = milliseconds(100)
    """How long a learner waits for an answer before it asks another donor."""

    # The rotating token.
    token_resend: Duration = milliseconds(30)
    """How long a member that passed the token waits for a sign of it before sending it again."""
    token_hold: Duration = Duration(0)
    """How long a member keeps the token before it uses it and passes it on (**objects** 6.3): more
    is packed together, and everything waits longer. Below `token_resend` divided by the number of
    members, or tokens that are kept are sent again."""


DEFAULT_SETTINGS = Settings()
