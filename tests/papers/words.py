"""What messages say, in the words of the papers' figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.colours import messages as colours
from coterie.kernel.requests import ServiceRequest
from coterie.llft import messages as llft
from coterie.membership import messages as vsync
from coterie.objects.execution.commands import decode_command
from coterie.ordering.dynseq import SequencerHeader
from coterie.replication import messages as primary
from coterie.replication.forming import CONTROL
from coterie.vsr.calls import messages as calls
from coterie.vsr.commit import events
from coterie.vsr.views import messages as cohort

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.claims import OrderRun
    from coterie.kernel.views import Member

_vsync: msgspec.msgpack.Decoder[vsync.VsyncMessage] = msgspec.msgpack.Decoder(vsync.VsyncMessage)
_order = msgspec.msgpack.Decoder(SequencerHeader)
_primary: msgspec.msgpack.Decoder[primary.PrimaryMessage] = msgspec.msgpack.Decoder(
    primary.PrimaryMessage
)
_requests: msgspec.msgpack.Decoder[list[ServiceRequest]] = msgspec.msgpack.Decoder(
    list[ServiceRequest]
)
_exchange: msgspec.msgpack.Decoder[colours.Direct] = msgspec.msgpack.Decoder(colours.Direct)
VsrMessage = cohort.CohortMessage | calls.TransactionMessage
_vsr: msgspec.msgpack.Decoder[VsrMessage] = msgspec.msgpack.Decoder(VsrMessage)


def _names(members: Iterable[Member]) -> str:
    return "{" + ",".join(member.id for member in members) + "}"


# ---- **objects**


def of_stack(message: msgspec.Raw) -> str | None:  # noqa: C901, PLR0911 -- one answer a kind
    """Say what a message of a stack with DYNSEQ and PRIMARY says."""
    match _vsync.decode(message):
        case vsync.Alive(view=view, members=members):
            return f"I am alive, in view {view} {_names(members)}"
        case vsync.MergeRequest(members=members):
            return f"merge request of {_names(members)}"
        case vsync.Propose(view=view, members=members):
            return f"propose view {view} {_names(members)}"
        case vsync.Refuse(promised=promised):
            return f"refuse: promised to {promised}"
        case vsync.Flush(previous=previous):
            return f"flush: has stopped in {previous}"
        case vsync.Cut(cut=cut):
            return f"cut: all must have {cut}"
        case vsync.Ready():
            return "ready"
        case vsync.Install(view=view, members=members):
            return f"install view {view} {_names(members)}"
        case vsync.Data(header=header, payloads=payloads):
            return _packet(header, payloads)
        case vsync.Direct(body=body):
            return _of_primary(_primary.decode(body))
    return None


def _packet(header: bytes, payloads: list[bytes]) -> str | None:
    order = _order.decode(header)
    parts = []
    if payloads and order.mark == CONTROL:
        parts += [text for each in payloads if (text := _of_primary(_primary.decode(each)))]
    elif payloads:
        parts += [f"entry {', '.join(map(bytes.decode, payloads))}"]
    if order.runs:
        parts.append("order: " + ", ".join(f"{count} of rank {rank}" for rank, count in order.runs))
    return "; ".join(parts) or None


def _of_primary(message: primary.PrimaryMessage) -> str | None:  # noqa: PLR0911 -- as above
    match message:
        case primary.Credentials(version=version, is_zombie=is_zombie):
            return f"credentials: history {version}" + (", zombie" if is_zombie else "")
        case primary.Accept(view=view):
            return f"accept primary view {view}"
        case primary.AckEntries(position=position):
            return f"have entries up to {position}"
        case primary.SettledUpTo(position=position):
            return f"settled up to {position}"
        case primary.FetchEntries(after=after, up_to=up_to):
            return f"fetch entries {after + 1} to {up_to}"
        case primary.Entries(runs=runs):
            return f"entries {runs[0].position} to {runs[-1].last_position}" if runs else "entries"
        case primary.StateOffer(position=position):
            return f"state offered, at {position}"
        case primary.FetchChunk(index=index):
            return f"fetch chunk {index}"
        case primary.StateChunk(index=index):
            return f"chunk {index} of the state"
    return None


# ---- **transis**


def of_colours(message: msgspec.Raw) -> str | None:
    """Say what a message of a stack with DYNSEQ and COLOURS says."""
    match _vsync.decode(message):
        case vsync.Data(header=header, payloads=payloads):
            order = _order.decode(header)
            parts = [_of_server(order.mark, each) for each in payloads]
            if order.runs:
                runs = ", ".join(f"{count} of rank {rank}" for rank, count in order.runs)
                parts.append(f"order: {runs}")
            return "; ".join(parts) or None
        case vsync.Direct(body=body):
            return _of_exchange(_exchange.decode(body))
        case vsync.Alive() | vsync.MergeRequest() | vsync.Cut() | vsync.Ready():
            return None
    return of_stack(message)


def _of_server(mark: int, payload: bytes) -> str:
    if mark != colours.CONTROL:
        return f"action {payload[colours.PREFIX_BYTES :].decode()}"
    match colours.decode_control(payload):
        case colours.State(green_end=green, red_cut=cut, prim=prim, vulnerable=vulnerable):
            known = " ".join(f"{creator}:{index}" for creator, index in cut)
            doubt = f", vulnerable by {vulnerable.attempt}" if vulnerable else ""
            return f"state: {green} green, holds {known or 'nothing'}, after {prim}{doubt}"
        case colours.Cpc():
            return "create primary component"
        case colours.GreenLine(position=position):
            return f"green up to {position}"
    return "another exchange"


def _of_exchange(message: colours.Direct) -> str | None:
    match message:
        case colours.FetchActions(red_cut=cut):
            known = " ".join(f"{creator}:{index}" for creator, index in cut)
            return f"fetch actions beyond {known or 'nothing'}"
        case colours.Actions(actions=actions):
            return f"actions {' '.join(str(action.id) for action in actions)}"
        case _:
            return _of_primary(message)


# ---- **rsp**


def of_server(message: msgspec.Raw) -> str | None:
    """Say what a message of a stack with ONUS says."""
    match _vsync.decode(message):
        case vsync.Data(header=header, payloads=payloads) if (
            payloads and _order.decode(header).mark != CONTROL
        ):
            order = _order.decode(header)
            parts = [text for each in payloads if (text := _request(each))]
            if parts and order.runs:
                parts.append(
                    ", ".join(f"order: {count} of rank {rank}" for rank, count in order.runs)
                )
            return "; ".join(parts) or None
        case vsync.Direct(body=body):
            decoded = _primary.decode(body)
            if isinstance(decoded, primary.ForAbove):
                requests = _requests.decode(decoded.body)
                return f"sent again: {', '.join(map(_of_request, requests))}"
            return _of_primary(decoded)
        case vsync.Alive() | vsync.MergeRequest() | vsync.Cut() | vsync.Ready():
            return None
    return of_stack(message)


def _request(payload: bytes) -> str | None:
    command = decode_command(payload)
    return _of_request(command) if isinstance(command, ServiceRequest) else None


def _of_request(request: ServiceRequest) -> str:
    return f"request {request.client}/{request.number} {request.method}"


# ---- **llft**


def of_program(message: msgspec.Raw) -> str | None:  # noqa: C901, PLR0911 -- one answer a kind
    """Say what a message of leader and followers says; signs of life are left out."""
    match llft.decoder.decode(message):
        case llft.OrdersMade(runs=runs, outputs=outputs):
            return f"orders {_orders(runs)}" + (", with output" if outputs else "")
        case llft.Reflected(runs=runs, stored=stored) if runs:
            return f"reflected: {_orders(runs)}, stored up to {stored}"
        case llft.Inputs(inputs=inputs) if inputs:
            return "input " + " ".join(f"{each.number} on {each.conn}" for each in inputs)
        case llft.ProposePrimary(claim=claim):
            return f"propose primary {claim}"
        case llft.Promised(claim=claim, last=last):
            return f"promise {claim}, holding orders up to {last}"
        case llft.ClaimSuperseded(claim=claim):
            return f"superseded by {claim}"
        case llft.ClaimDeclined(claim=claim):
            return f"decline {claim}: the primary is heard of"
        case llft.NewPrimaryView(claim=claim, last=last):
            return f"new primary view {claim}, orders up to {last}"
        case llft.ViewAnswer(claim=claim, common=common, stored=stored):
            return f"{claim}: lower claims are fenced; {stored} stored, {common} of them as yours"
        case llft.ProposeBackup(last=last):
            return f"propose backup, holding orders up to {last}"
        case llft.AcceptBackup(common=common):
            return f"accept backup, your orders are mine up to {common}"
        case llft.StateSent(state=state):
            return f"state at {state.number}"
    return None


def _orders(runs: list[OrderRun]) -> str:
    return " ".join(
        f"{number} {order.kind.name}"
        for run in runs
        for number, order in enumerate(run.orders, run.first)
    )


# ---- **vsr**


def of_cohort(message: msgspec.Raw) -> str | None:
    """Say what a message of viewstamped replication says."""
    decoded = _vsr.decode(message)
    return _of_view(decoded) or _of_call(decoded) or _of_commit(decoded)


def _of_view(message: VsrMessage) -> str | None:  # noqa: PLR0911 -- one answer a kind
    match message:
        case cohort.Invite(view=view):
            return f"invite to view {view}"
        case cohort.AcceptInvitation(
            view=view, crashed=crashed, known=known, was_primary=was_primary
        ):
            if crashed:
                return f"crash-accept view {view}, last active in {known.view}"
            return f"accept view {view}, knowing {known}" + (", as primary" if was_primary else "")
        case cohort.InitView(view=view):
            return f"init view {view}"
        case cohort.NewView(view=view, history=history):
            return f"new view {view}, history {' '.join(map(str, history))}"
        case cohort.NewEvents(events=told, first=first):
            if not told:
                return None
            records = (f"{number} {_event(event)}" for number, event in enumerate(told, first))
            return f"buffer: {', '.join(records)}"
        case cohort.AckEvents(number=number):
            return f"have events up to {number}"
        case cohort.FetchEvents():
            return "fetch events"
    return None


def _of_call(message: VsrMessage) -> str | None:  # noqa: PLR0911 -- one answer a kind
    match message:
        case calls.BeginTransaction():
            return "begin a transaction"
        case calls.TransactionBegun(aid=aid):
            return f"begun: {aid}"
        case calls.CallRequest(aid=aid, method=method):
            return f"call {method} for {aid}"
        case calls.CallReply(pset=pset):
            return f"reply, pset {{{' '.join(f'{pair.group}:{pair.vs}' for pair in pset)}}}"
        case calls.EndTransaction(commit=commit):
            return "commit it" if commit else "abort it"
        case calls.TransactionEnded(committed=committed):
            return "it is committed" if committed else "it is aborted"
    return None


def _of_commit(message: VsrMessage) -> str | None:  # noqa: PLR0911 -- one answer a kind
    match message:
        case calls.Prepare(pset=pset):
            return f"prepare, pset {{{' '.join(f'{pair.group}:{pair.vs}' for pair in pset)}}}"
        case calls.Prepared(is_read_only=is_read_only):
            return "prepared" + (", only read" if is_read_only else "")
        case calls.PrepareRefused(reason=reason):
            return f"refused: {reason}"
        case calls.Commit():
            return "commit"
        case calls.CommitDone():
            return "done"
        case calls.Abort(reason=reason):
            return f"abort: {reason}"
    return None


_EVENTS = {
    events.CompletedCall: "completed-call",
    events.CallsGivenUp: "calls given up",
    events.Committing: "committing",
    events.Committed: "committed",
    events.Aborted: "aborted",
    events.DecisionKnown: "done",
}


def _event(data: bytes) -> str:
    """Say which event record of figures 2 and 3 it is."""
    return _EVENTS[type(events.decode_event(data))]
