"""Checks of transactions over all groups of cohorts at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.serializability import CommittedTransaction, check_serializable
from coterie.pipeline.history.results import Results

if TYPE_CHECKING:
    from coterie.pipeline.engines.vsr.events import JournalPart
    from coterie.pipeline.engines.vsr.history import Place
    from coterie.pipeline.engines.vsr.transactions import Taking, Transaction, TransactionLedger

_ENDED_EARLY = "journals end before all groups had heard how a transaction ended"
_FORCED_PERHAPS = "the end of a journal may be missing that says whether its decision was forced"
_MISSING = "journals are missing that may tell of its calls"


def check_transactions(ledger: TransactionLedger) -> list[Results]:
    """Run all checks that look at transactions one by one; give what was found in each group."""
    found = {group: Results(group) for group in ledger.groups}
    for group, results in found.items():
        writes = sum(
            len(call.writes)
            for transaction in ledger.transactions.values()
            if group in transaction.groups
            for call, _ in transaction.groups[group].calls.values()
        )
        results.checked("locks kept", writes)
    for transaction in ledger.transactions.values():
        _atomic(transaction, ledger, found)
        _lost_calls_abort(transaction, ledger, found)
        if transaction.is_committed:
            for group in transaction.groups:
                found[group].checked("serializable", 1)
    return list(found.values())


def check_suspects(ledger: TransactionLedger) -> list[Results]:
    """Look in full at what columns called possible: objects held by two, and circles."""
    found = {group: Results(group) for group in ledger.groups}
    for group, evidence, places in ledger.locks:
        found[group].violate("locks kept", evidence, rows=places)
    _serializable(ledger, found)
    return list(found.values())


def _atomic(transaction: Transaction, ledger: TransactionLedger, found: dict[str, Results]) -> None:
    """What a coordinator committed is committed by every group that had to install something."""
    check = "atomic"
    aid, decision = transaction.aid, transaction.decision
    for group, taking in transaction.groups.items():
        results = found[group]
        results.checked(check, 1)
        if taking.aborted is not None and decision is not None:
            results.violate(
                check,
                f"{aid} is committed, and aborted by {group}: {taking.aborted}",
                rows=[transaction.decided_at, taking.place],
            )
        if _has_written(taking) and decision is None:
            if transaction.is_decision_on_record and ledger.groups[aid.group].may_have_forced_more:
                results.undecided(check, 1, _FORCED_PERHAPS)
            elif aid.group in found and aid.group not in ledger.incomplete:
                results.violate(
                    check, f"{group} committed {aid} without a decision", rows=[taking.place]
                )
            else:
                results.undecided(check, 1, f"the journals of {aid.group} do not tell all")
    for part in _parts(transaction):
        if part.group in found:
            _installed_as_decided(transaction, part, ledger, found[part.group])
        elif aid.group in found:
            found[aid.group].undecided(check, 1, f"there is no journal of {part.group}")


def _installed_as_decided(
    transaction: Transaction, part: JournalPart, ledger: TransactionLedger, results: Results
) -> None:
    check = "atomic"
    aid, taken = transaction.aid, transaction.part(part.group)
    if taken.installed is not None:
        if taken.installed.calls != part.calls:
            results.violate(
                check,
                f"{aid} is committed, and {part.group} installed other calls than were decided",
                rows=[transaction.decided_at, taken.place],
            )
    elif transaction.is_done and part.group not in ledger.incomplete:
        results.violate(
            check,
            f"{aid} is committed and called done, and not installed by {part.group}",
            rows=[transaction.decided_at],
        )
    elif taken.aborted is None:
        results.not_yet(check, 1, _ENDED_EARLY)


def _lost_calls_abort(
    transaction: Transaction, ledger: TransactionLedger, found: dict[str, Results]
) -> None:
    """A committed transaction has no call that was lost in a view change."""
    check = "lost calls abort"
    named = {part.group: set(part.calls) for part in _parts(transaction)}
    for group, taking in transaction.groups.items():
        if taking.installed is not None:
            named.setdefault(group, set()).update(taking.installed.calls)
    for group, calls in named.items():
        results = found.get(group)
        if results is None:
            continue
        results.checked(check, len(calls))
        taken = transaction.groups.get(group)
        missing = sorted(calls - set(taken.calls if taken else ()))
        if not missing:
            continue
        if group in ledger.incomplete:
            results.undecided(check, len(missing), _MISSING)
            continue
        lost = taken.lost if taken is not None else {}
        results.violate(
            check,
            f"{transaction.aid} committed; its call {group}:{missing[0]} is lost",
            rows=[lost[each] for each in missing if each in lost] or [_end_of(transaction, group)],
        )


def _serializable(ledger: TransactionLedger, found: dict[str, Results]) -> None:
    """Committed transactions could have run one after the other."""
    check = "serializable"
    committed = [each for each in ledger.transactions.values() if each.is_committed]
    violations = check_serializable(map(_done_by, committed), ledger.orders)
    for violation in violations:
        involved = [
            each
            for each in committed
            if str(each.aid) in violation.about and set(each.groups) & set(found)
        ]
        named = next((group for each in involved for group in sorted(each.groups)), "")
        results = found.get(named) or next(iter(found.values()))
        if ledger.incomplete and "a circle" not in violation.evidence:
            results.undecided(check, 1, _MISSING)
            continue
        rows = [taking.place for each in involved for taking in each.groups.values()]
        results.violate(check, violation.evidence, rows=rows)


def _parts(transaction: Transaction) -> list[JournalPart]:
    return [] if transaction.decision is None else transaction.decision.parts


def _end_of(transaction: Transaction, group: str) -> Place:
    taking = transaction.groups.get(group)
    return transaction.decided_at if taking is None else taking.place


def _has_written(taking: Taking) -> bool:
    return any(call.writes for call in taking.counting())


def _done_by(transaction: Transaction) -> CommittedTransaction:
    done = CommittedTransaction(str(transaction.aid))
    for group, taking in transaction.groups.items():
        for call in taking.counting():
            done.reads += [
                (f"{group}/{read.name}", None if read.version is None else str(read.version))
                for read in call.reads
            ]
            done.writes += [(f"{group}/{write.name}", taking.installed_as) for write in call.writes]
    return done
