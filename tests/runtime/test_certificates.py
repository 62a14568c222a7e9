"""Certificates that are replaced, withdrawn and revoked while connections are open."""

from __future__ import annotations

import datetime as dt
import logging
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from tests.runtime.test_security import is_up, pair, until

from coterie.runtime.certificates import TlsFiles
from coterie.runtime.loop import run
from coterie.runtime.security import Security, SecurityError
from coterie.service.security import CertificateWatch, check_certificate

if TYPE_CHECKING:
    from pathlib import Path

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


class Issuer:
    """An authority, with a revocation list."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        key = self.authority.private_key_pem.bytes()
        self._key = load_pem_private_key(key, None)
        self.pem = self.authority.cert_pem.bytes()

    def issue(self) -> trustme.LeafCert:
        return self.authority.issue_cert("replica-a", "replica-b")

    def revoke(self, *certificates: trustme.LeafCert, until: dt.datetime = NOW + DAY) -> bytes:
        issuer = x509.load_pem_x509_certificate(self.pem).subject
        made = x509.CertificateRevocationListBuilder(issuer, NOW - 2 * DAY, until)
        for each in certificates:
            serial = x509.load_pem_x509_certificate(each.cert_chain_pems[0].bytes()).serial_number
            revoked = x509.RevokedCertificateBuilder(serial, NOW - 2 * DAY)
            made = made.add_revoked_certificate(revoked.build())
        return made.sign(self._key, SHA256()).public_bytes(Encoding.PEM)  # type: ignore[arg-type]


class Holder:
    """The files of one process."""

    def __init__(self, folder: Path, *, revoked: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        self.certificate = folder / "certificate.pem"
        self.key = folder / "key.pem"
        self.authority = folder / "authority.pem"
        self.revoked = folder / "revoked.pem" if revoked else None

    def write(self, leaf: trustme.LeafCert) -> None:
        self.certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        self.key.write_bytes(leaf.private_key_pem.bytes())

    def files(self) -> TlsFiles:
        return TlsFiles(self.certificate, self.key, self.authority, self.revoked)


def make(folder: Path, issuer: Issuer) -> Holder:
    holder = Holder(folder)
    holder.write(issuer.issue())
    holder.authority.write_bytes(issuer.pem)
    return holder


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """Have two contexts meet; give the certificate that the client was shown."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    opening = client.wrap_bio(to_client, to_server)
    ends = [opening, accepting]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    assert not ends
    shown = opening.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def test_a_new_certificate_without_its_key_leaves_the_old_pair_in_use(tmp_path: Path) -> None:
    """The context in use took the certificate, refused the key, and was of no use from then on."""
    issuer = Issuer()
    holder = make(tmp_path, issuer)
    files = holder.files()
    old = shake_hands(files.server, files.client)
    new = issuer.issue()
    holder.certificate.write_bytes(new.cert_chain_pems[0].bytes())
    for _ in range(2):
        with pytest.raises(SecurityError, match="do not belong together; replace both"):
            files.reload()
        assert shake_hands(files.server, files.client) == old
    holder.key.write_bytes(new.private_key_pem.bytes())
    assert files.reload()
    assert shake_hands(files.server, files.client) != old
    assert not files.reload()


def test_a_file_that_makes_no_sense_leaves_the_old_ones_in_use(tmp_path: Path) -> None:
    holder = make(tmp_path, Issuer())
    files = holder.files()
    for file in (holder.certificate, holder.key, holder.authority):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(SecurityError, match="cannot be used"):
            files.reload()
        file.write_bytes(b"")
        with pytest.raises(SecurityError, match="cannot be used"):
            files.reload()
        shake_hands(files.server, files.client)
        file.write_bytes(whole)
        files.reload()


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    issuer = Issuer()
    holder = make(tmp_path, issuer)
    key = load_pem_private_key(holder.key.read_bytes(), None)
    holder.key.write_bytes(
        key.private_bytes(
            Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"a word"),
        )
    )
    with pytest.raises(SecurityError, match="passphrase"):
        holder.files()


def test_trust_is_taken_up_also_where_the_pair_is_bad(tmp_path: Path) -> None:
    """Or a withdrawn authority would be trusted until somebody repairs a certificate."""
    ours, theirs = Issuer(), Issuer()
    holder = make(tmp_path, ours)
    holder.authority.write_bytes(ours.pem + theirs.pem)
    files = holder.files()
    stranger = make(tmp_path / "theirs", theirs)
    stranger.authority.write_bytes(ours.pem)
    shake_hands(files.server, stranger.files().client)
    holder.authority.write_bytes(ours.pem)
    holder.key.write_bytes(b"no key")
    with pytest.raises(SecurityError, match="cannot be used"):
        files.reload()
    with pytest.raises(ssl.SSLError):
        shake_hands(files.server, stranger.files().client)


class Listening:
    """Notes that connections were to be ended."""

    def __init__(self) -> None:
        self.ended = 0

    def end_untrusted(self) -> None:
        self.ended += 1


def test_what_is_wrong_is_told_once_and_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer()
    holder = make(tmp_path, issuer)
    watch = CertificateWatch(holder.files(), [])
    key = holder.key.read_bytes()
    with caplog.at_level(logging.INFO):
        watch.look()
        holder.key.write_bytes(issuer.issue().private_key_pem.bytes())
        for _ in range(3):
            watch.look()
        assert "what was there before stays in use" in watch.wrong
        holder.key.write_bytes(key)
        watch.look()
    assert watch.wrong == ""
    told = [record.getMessage() for record in caplog.records]
    assert [line.split(" reason")[0] for line in told] == [
        "certificates cannot be used",
        "certificates taken up",
    ]


def test_a_replica_with_a_certificate_that_nobody_accepts_does_not_start(tmp_path: Path) -> None:
    ours, theirs = Issuer(), Issuer()
    holder = make(tmp_path, ours)
    check_certificate(holder.files())
    holder.write(theirs.issue())
    with pytest.raises(SecurityError, match=r"refused by every other one: .*issuer"):
        check_certificate(holder.files())
    expired = ours.authority.issue_cert("replica-a", "replica-b", not_after=NOW - DAY)
    holder.write(expired)
    with pytest.raises(SecurityError, match="certificate has expired"):
        check_certificate(holder.files())


def test_an_authority_that_is_added_ends_nothing_and_one_that_is_withdrawn_does(
    tmp_path: Path,
) -> None:
    old, new = Issuer(), Issuer()
    a, b = make(tmp_path / "a", old), make(tmp_path / "b", old)

    async def story() -> None:
        one, other = Security(tls=a.files()), Security(tls=b.files())
        watches: list[CertificateWatch] = []
        async with pair(one, other) as (here, there):
            for security, transport in ((one, here), (other, there)):
                assert security.tls is not None
                watches.append(CertificateWatch(security.tls, [transport]))
            await until(is_up(here, there))
            for holder in (a, b):
                holder.authority.write_bytes(old.pem + new.pem)
            for watch in watches:
                watch.look()
            for holder in (a, b):
                holder.write(new.issue())
            for watch in watches:
                watch.look()
                assert watch.wrong == ""
            assert is_up(here, there)()
            assert "transport.connections_withdrawn" not in here.counters
            for holder in (a, b):
                holder.authority.write_bytes(new.pem)
            for watch in watches:
                watch.look()
            assert here.counters["transport.connections_withdrawn"] == 1
            await until(is_up(here, there))  # with what is trusted now
            # And now somebody whose authority is withdrawn, while it is connected.
            b.write(old.issue())
            b.authority.write_bytes(old.pem + new.pem)
            a.authority.write_bytes(old.pem + new.pem)
            for watch in watches:
                watch.look()
            a.authority.write_bytes(new.pem)
            watches[0].look()
            assert not here.is_up("b")
            refused = "transport.dials_failed"
            before = here.counters.get(refused, 0)
            await until(lambda: here.counters.get(refused, 0) >= before + 3)
            assert not here.is_up("b")

    run(story())


def test_who_is_on_the_revocation_list_is_let_in_no_more(tmp_path: Path) -> None:
    issuer = Issuer()
    holder, stolen = make(tmp_path / "a", issuer), issuer.issue()
    thief = make(tmp_path / "b", issuer)
    thief.write(stolen)
    holder.revoked = tmp_path / "revoked.pem"
    holder.revoked.write_bytes(issuer.revoke())
    files = holder.files()
    shake_hands(files.server, thief.files().client)
    ended = Listening()
    watch = CertificateWatch(files, [ended])
    holder.revoked.write_bytes(issuer.revoke(stolen))
    watch.look()
    assert (watch.wrong, ended.ended) == ("", 1)
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        shake_hands(files.server, thief.files().client)
    shake_hands(files.server, files.client)


def test_a_revocation_list_that_has_expired_lets_nobody_in_and_says_so(tmp_path: Path) -> None:
    issuer = Issuer()
    holder = make(tmp_path, issuer)
    holder.revoked = tmp_path / "revoked.pem"
    holder.revoked.write_bytes(issuer.revoke(until=NOW - DAY))
    with pytest.raises(SecurityError, match="CRL has expired"):
        check_certificate(holder.files())


def test_a_certificate_among_revocation_lists_is_not_trusted(tmp_path: Path) -> None:
    """OpenSSL takes whatever is in the file, and certificates there for authorities."""
    issuer = Issuer()
    holder = make(tmp_path, issuer)
    holder.revoked = tmp_path / "revoked.pem"
    holder.revoked.write_bytes(issuer.revoke() + Issuer().pem)
    with pytest.raises(SecurityError, match="and nothing else"):
        holder.files()


def test_no_ticket_from_before_gets_anybody_in(tmp_path: Path) -> None:
    """Sessions are resumed without certificates, so tickets end with what they were given for."""
    old, new = Issuer(), Issuer()
    holder, stranger = make(tmp_path / "a", new), make(tmp_path / "b", old)
    holder.authority.write_bytes(new.pem + old.pem)
    stranger.authority.write_bytes(new.pem)
    files, theirs = holder.files(), stranger.files().client
    session = _session(files.server, theirs)
    assert session is not None
    holder.authority.write_bytes(new.pem)
    assert files.reload()
    with pytest.raises(ssl.SSLError):
        _session(files.server, theirs, session)


def _session(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLSession | None:
    """Shake hands, with a ticket if there is one; give the ticket for the next time."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    opening = client.wrap_bio(to_client, to_server, session=session)
    ends = [opening, accepting]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    assert not ends
    accepting.write(b"x")
    assert opening.read(1) == b"x"
    return opening.session
