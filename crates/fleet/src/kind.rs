//! Every kind of endpoint, a line each: how common it is, what its certificate says, how it is
//! served, and what a scanner should say of it.

use crate::key::SignedWith;
use crate::key_kind::KeyKind;

/// One kind of endpoint.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Stable, for the ground truth.
    pub(crate) name: &'static str,
    /// How common it is among its family.
    pub(crate) weight: u32,
    pub(crate) family: Family,
    pub(crate) company: Company,
    pub(crate) dns: Dns,
    pub(crate) leaf: Leaf,
    pub(crate) chain: Chain,
    pub(crate) serve: Serve,
    pub(crate) outcome: &'static str,
    /// What the endpoint breaks by itself; what it breaks together with others is counted.
    pub(crate) findings: &'static [&'static str],
}

/// Where a kind belongs in a [`crate::Mix`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    /// TLS from the first byte, no finding.
    Healthy,
    /// Fine too, but needs more than a plain look: STARTTLS, several addresses, findings for information.
    Special,
    /// Answers, and something is wrong.
    Flawed,
    /// Shows no certificate.
    Dead,
}

/// How endpoints of a kind stand to each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Company {
    /// On its own.
    Alone,
    /// Several addresses, one certificate.
    Addresses(usize),
    /// Several addresses, a certificate each.
    Differing(usize),
    /// So many hosts share a certificate, each with an address.
    SharedCertificate(usize),
    /// So many hosts share a key.
    SharedKey(usize),
    /// So many names on one address, one wildcard certificate.
    Balancer(usize),
    /// So many names on one address, a certificate each, chosen by SNI.
    VirtualHosts(usize),
}

impl Company {
    /// Endpoints that come together.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Alone | Self::Addresses(_) | Self::Differing(_) => 1,
            Self::SharedCertificate(n) | Self::SharedKey(n) | Self::VirtualHosts(n) => n,
            Self::Balancer(n) => n,
        }
    }

    /// Endpoints that there must be for the kind to show.
    pub(crate) fn least(self) -> usize {
        if self.size() > 1 { 3 } else { 1 }
    }
}

/// What the name server says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Dns {
    Address,
    /// So many aliases in a row before the address.
    Aliases(usize),
    /// Addresses with this time to live, in seconds.
    ShortLived(u32),
    NxDomain,
    /// The name exists and has no address.
    NoData,
    ServFail,
    Refused,
    Silent,
    Loop,
}

/// What the leaf says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) key: KeyKind,
    /// Days from the start of the fleet to the start of the validity; negative is past.
    pub(crate) from_days: i64,
    /// Days from the start to the end of the validity.
    pub(crate) life_days: i64,
    pub(crate) naming: Naming,
    pub(crate) serial: Serial,
    pub(crate) issuer: Issuer,
    pub(crate) signed_with: SignedWith,
}

/// Which names the leaf has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Naming {
    /// The host's own, as common name and alternative name.
    Own,
    /// Another endpoint's.
    Other,
    /// A wildcard over the host's parent.
    Wildcard,
    /// A common name and no alternative name.
    CommonNameOnly,
    /// A common name of more than 64 characters.
    LongCommonName,
    /// The host's own and 99 more.
    Hundred,
    /// The address; the target is the address as well.
    Address,
}

/// What the serial number looks like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Serial {
    Random,
    Zero,
    Negative,
    TooLong,
    Short,
}

/// Who signs the leaf.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Issuer {
    /// The fleet's intermediate, below the root that is told.
    Issuing,
    /// An RSA intermediate below an RSA root that is told too.
    Rsa,
    /// An intermediate below a root that is not in any trust store.
    Private,
    /// An intermediate that has expired.
    Expired,
    /// An intermediate three levels down.
    Deep,
    /// An intermediate that two roots have signed, only one of which is told.
    Crossed,
    /// Itself.
    Oneself,
}

impl Issuer {
    /// All but oneself.
    pub(crate) const AUTHORITIES: [Self; 6] =
        [Self::Issuing, Self::Rsa, Self::Private, Self::Expired, Self::Deep, Self::Crossed];
}

/// The certificates sent with the leaf.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Chain {
    /// All between leaf and root.
    Full,
    /// The root as well.
    WithRoot,
    /// The leaf alone.
    LeafAlone,
    /// A longer chain, upside down but for the leaf.
    Misordered,
    /// An intermediate of somebody else at the end.
    Stray,
    /// The same intermediates again and again, to so many certificates.
    Huge(usize),
}

/// Versions of TLS.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Versions {
    Both,
    Only12,
    Only13,
}

/// The protocol before TLS.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Upgrade {
    Smtp,
    Lmtp,
    Imap,
    Pop3,
    Sieve,
    Ftp,
    Ldap,
    Postgres,
    Mysql,
    Xmpp,
    Nntp,
}

impl Upgrade {
    pub(crate) const ALL: [Self; 11] = [
        Self::Smtp,
        Self::Lmtp,
        Self::Imap,
        Self::Pop3,
        Self::Sieve,
        Self::Ftp,
        Self::Ldap,
        Self::Postgres,
        Self::Mysql,
        Self::Xmpp,
        Self::Nntp,
    ];

    /// The scheme that asks for it.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Smtp => "smtp",
            Self::Lmtp => "lmtp",
            Self::Imap => "imap",
            Self::Pop3 => "pop3",
            Self::Sieve => "sieve",
            Self::Ftp => "ftp",
            Self::Ldap => "ldap",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Xmpp => "xmpp",
            Self::Nntp => "nntp",
        }
    }
}

/// A server older than any library here: it sends its part in clear and goes no further.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Relic {
    /// As on the wire: 0x0301 is TLS 1.0.
    pub(crate) version: u16,
    pub(crate) suite: u16,
}

/// How an endpoint behaves once connected.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Serve {
    Tls(Versions),
    /// TLS with HTTP/2 offered.
    H2,
    /// TLS with a stapled OCSP response.
    Stapled,
    /// TLS that demands a certificate of the client.
    ClientCertificate(Versions),
    /// TLS after a dialogue.
    StartTls(Upgrade),
    Relic(Relic),
    Fault(Fault),
}

/// How an endpoint fails.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Fault {
    Refused,
    ResetAtOnce,
    ResetAfterHello,
    BlackHole,
    /// Connected, and then nothing.
    Stall,
    /// A ServerHello, and then nothing.
    StallAfterHello,
    HttpAnswer,
    SshBanner,
    /// A fatal alert.
    Alert(u8),
    CloseAtOnce,
    /// A ServerHello, then the end.
    CloseAfterHello,
    /// A good handshake, a byte a second.
    Drip,
    /// Handshake bytes without end.
    Endless,
    /// A certificate message that says it is 16 MB long.
    Oversized,
}

const fn leaf(key: KeyKind) -> Leaf {
    Leaf {
        key,
        from_days: -20,
        life_days: 90,
        naming: Naming::Own,
        serial: Serial::Random,
        issuer: Issuer::Issuing,
        signed_with: SignedWith::Usual,
    }
}

const P256: Leaf = leaf(KeyKind::P256);

const fn dated(from_days: i64, life_days: i64) -> Leaf {
    Leaf { from_days, life_days, ..P256 }
}

const fn named(naming: Naming) -> Leaf {
    Leaf { naming, ..P256 }
}

const fn issued(issuer: Issuer) -> Leaf {
    Leaf { issuer, ..P256 }
}

const fn numbered(serial: Serial) -> Leaf {
    Leaf { serial, ..P256 }
}

const fn kind(name: &'static str, weight: u32, family: Family) -> Kind {
    Kind {
        name,
        weight,
        family,
        company: Company::Alone,
        dns: Dns::Address,
        leaf: P256,
        chain: Chain::Full,
        serve: Serve::Tls(Versions::Both),
        outcome: "answered",
        findings: &[],
    }
}

const fn healthy(name: &'static str, weight: u32) -> Kind {
    kind(name, weight, Family::Healthy)
}

const fn special(name: &'static str, weight: u32) -> Kind {
    kind(name, weight, Family::Special)
}

const fn flawed(name: &'static str, weight: u32, findings: &'static [&'static str]) -> Kind {
    Kind { findings, ..kind(name, weight, Family::Flawed) }
}

const fn upgraded(name: &'static str, upgrade: Upgrade) -> Kind {
    Kind { serve: Serve::StartTls(upgrade), ..special(name, 2) }
}

const fn relic(
    name: &'static str,
    version: u16,
    suite: u16,
    leaf: Leaf,
    findings: &'static [&'static str],
) -> Kind {
    Kind { leaf, serve: Serve::Relic(Relic { version, suite }), ..flawed(name, 1, findings) }
}

const fn unresolved(name: &'static str, weight: u32, dns: Dns, outcome: &'static str) -> Kind {
    Kind { dns, outcome, ..kind(name, weight, Family::Dead) }
}

const fn faulty(name: &'static str, weight: u32, fault: Fault, outcome: &'static str) -> Kind {
    Kind { serve: Serve::Fault(fault), outcome, ..kind(name, weight, Family::Dead) }
}

use Serve::{ClientCertificate, Tls};

/// All of them.
#[rustfmt::skip]
pub(crate) static KINDS: &[Kind] = &[
    // As it should be
    healthy("p256", 600),
    Kind { leaf: leaf(KeyKind::P384), ..healthy("p384", 10) },
    Kind { leaf: leaf(KeyKind::Ed25519), ..healthy("ed25519", 5) },
    Kind { leaf: leaf(KeyKind::Rsa2048), ..healthy("rsa-2048", 8) },
    Kind { leaf: Leaf { issuer: Issuer::Rsa, ..leaf(KeyKind::Rsa2048) }, ..healthy("rsa-chain", 8) },
    Kind { serve: Tls(Versions::Only12), ..healthy("tls-1.2-only", 60) },
    Kind { serve: Tls(Versions::Only13), ..healthy("tls-1.3-only", 60) },
    Kind { serve: Serve::H2, ..healthy("alpn-h2", 60) },
    Kind { serve: Serve::Stapled, ..healthy("ocsp-stapled", 20) },
    Kind { leaf: issued(Issuer::Deep), ..healthy("long-chain", 10) },
    Kind { leaf: issued(Issuer::Crossed), ..healthy("cross-signed", 10) },
    Kind { chain: Chain::WithRoot, ..healthy("root-sent", 10) },
    Kind { leaf: dated(-1, 6), ..healthy("six-days", 10) },
    Kind { leaf: named(Naming::Hundred), ..healthy("hundred-names", 5) },
    Kind { dns: Dns::Aliases(3), ..healthy("cname-chain", 20) },
    Kind { dns: Dns::ShortLived(1), ..healthy("short-ttl", 10) },
    Kind { dns: Dns::ShortLived(0), ..healthy("zero-ttl", 5) },
    Kind { company: Company::Addresses(3), ..healthy("three-addresses", 10) },
    Kind { serve: ClientCertificate(Versions::Only12), ..healthy("client-certificate-1.2", 5) },
    Kind { serve: ClientCertificate(Versions::Only13), ..healthy("client-certificate-1.3", 5) },
    Kind { company: Company::VirtualHosts(2), ..healthy("virtual-hosts", 10) },
    // Fine, but not plain
    Kind { leaf: named(Naming::Address), ..special("address", 5) },
    Kind { company: Company::Balancer(200), leaf: named(Naming::Wildcard), findings: &["certificate.wildcard"], ..special("balancer", 100) },
    Kind { leaf: named(Naming::Wildcard), findings: &["certificate.wildcard"], ..special("wildcard", 20) },
    Kind { company: Company::SharedCertificate(3), ..special("shared-certificate", 10) },
    upgraded("starttls-smtp", Upgrade::Smtp),
    upgraded("starttls-lmtp", Upgrade::Lmtp),
    upgraded("starttls-imap", Upgrade::Imap),
    upgraded("starttls-pop3", Upgrade::Pop3),
    upgraded("starttls-sieve", Upgrade::Sieve),
    upgraded("starttls-ftp", Upgrade::Ftp),
    upgraded("starttls-ldap", Upgrade::Ldap),
    upgraded("starttls-postgres", Upgrade::Postgres),
    upgraded("starttls-mysql", Upgrade::Mysql),
    upgraded("starttls-xmpp", Upgrade::Xmpp),
    upgraded("starttls-nntp", Upgrade::Nntp),
    // Wrong dates
    Kind { leaf: dated(-100, 90), ..flawed("expired", 12, &["certificate.expired"]) },
    Kind { leaf: dated(10, 90), ..flawed("not-yet-valid", 3, &["certificate.not-yet-valid"]) },
    Kind { leaf: dated(-145, 150), ..flawed("expires-in-5-days", 8, &["certificate.expiring"]) },
    Kind { leaf: dated(-130, 150), ..flawed("expires-in-20-days", 8, &["certificate.expiring"]) },
    Kind { leaf: dated(-5, 6), ..flawed("six-days-nearly-over", 2, &["certificate.expiring-fraction"]) },
    Kind { leaf: dated(-20, 3_650), ..flawed("lifetime-ten-years", 3, &["certificate.lifetime"]) },
    // Wrong names
    Kind { leaf: named(Naming::Other), ..flawed("name-mismatch", 12, &["endpoint.name-mismatch"]) },
    Kind { leaf: named(Naming::CommonNameOnly), ..flawed("common-name-only", 3, &["certificate.common-name-only"]) },
    Kind { leaf: named(Naming::LongCommonName), ..flawed("common-name-too-long", 2, &["certificate.common-name-too-long"]) },
    // Wrong chains
    Kind { leaf: issued(Issuer::Oneself), chain: Chain::LeafAlone, ..flawed("self-signed", 12, &["chain.self-signed"]) },
    Kind { leaf: issued(Issuer::Private), chain: Chain::WithRoot, ..flawed("untrusted", 6, &["chain.untrusted-root"]) },
    Kind { leaf: issued(Issuer::Private), ..flawed("root-unknown", 6, &["chain.untrusted-root"]) },
    Kind { chain: Chain::LeafAlone, ..flawed("incomplete-chain", 10, &["chain.incomplete"]) },
    Kind { leaf: issued(Issuer::Deep), chain: Chain::Misordered, ..flawed("misordered-chain", 5, &["chain.misordered"]) },
    Kind { chain: Chain::Stray, ..flawed("stray-certificate", 5, &["chain.stray"]) },
    Kind { leaf: issued(Issuer::Expired), ..flawed("expired-intermediate", 3, &["chain.expired-intermediate"]) },
    // Wrong keys and signatures
    Kind { leaf: leaf(KeyKind::Rsa1024), serve: Tls(Versions::Only12), ..flawed("rsa-1024", 3, &["certificate.weak-key"]) },
    Kind { leaf: Leaf { issuer: Issuer::Rsa, signed_with: SignedWith::Sha1, ..P256 }, ..flawed("sha1-signature", 3, &["certificate.sha1-signature"]) },
    Kind { company: Company::SharedKey(3), ..flawed("shared-key", 9, &[]) },
    Kind { company: Company::Differing(2), ..flawed("differs-across-addresses", 3, &[]) },
    // Wrong serial numbers
    Kind { leaf: numbered(Serial::Zero), ..flawed("serial-zero", 1, &["certificate.serial-zero"]) },
    Kind { leaf: numbered(Serial::Negative), ..flawed("serial-negative", 1, &["certificate.serial-negative"]) },
    Kind { leaf: numbered(Serial::TooLong), ..flawed("serial-too-long", 1, &["certificate.serial-too-long"]) },
    Kind { leaf: numbered(Serial::Short), ..flawed("serial-short", 1, &["certificate.serial-short"]) },
    // Relics
    relic("tls-1.0-relic", 0x0301, 0x002f, leaf(KeyKind::Rsa2048), &["protocol.no-forward-secrecy", "protocol.obsolete"]),
    relic("tls-1.1-relic", 0x0302, 0x002f, leaf(KeyKind::Rsa2048), &["protocol.no-forward-secrecy", "protocol.obsolete"]),
    relic("static-rsa", 0x0303, 0x009c, leaf(KeyKind::Rsa2048), &["protocol.no-forward-secrecy"]),
    relic("rsa-512-md5", 0x0301, 0x0004, Leaf { issuer: Issuer::Rsa, signed_with: SignedWith::Md5, ..leaf(KeyKind::Rsa512) }, &["certificate.weak-key", "certificate.weak-signature", "chain.invalid", "protocol.no-forward-secrecy", "protocol.obsolete", "protocol.weak-cipher"]),
    relic("dsa", 0x0301, 0x0032, leaf(KeyKind::Dsa1024), &["certificate.weak-key", "protocol.obsolete"]),
    // Absurd
    // More than a scanner reads; the leaf comes first and is read all the same.
    Kind { chain: Chain::Huge(100), ..flawed("hundred-certificates", 1, &[]) },
    // Unresolved
    unresolved("nxdomain", 12, Dns::NxDomain, "nxdomain"),
    unresolved("no-address", 2, Dns::NoData, "no-address"),
    unresolved("servfail", 4, Dns::ServFail, "servfail"),
    unresolved("dns-refused", 1, Dns::Refused, "dns-refused"),
    unresolved("dns-timeout", 4, Dns::Silent, "dns-timeout"),
    unresolved("cname-loop", 2, Dns::Loop, "cname-loop"),
    // Dead and odd
    faulty("refused", 14, Fault::Refused, "refused"),
    faulty("reset", 3, Fault::ResetAtOnce, "reset"),
    faulty("reset-after-hello", 3, Fault::ResetAfterHello, "reset"),
    faulty("black-hole", 14, Fault::BlackHole, "black-hole"),
    faulty("stall", 6, Fault::Stall, "stall"),
    faulty("stall-after-hello", 2, Fault::StallAfterHello, "slow"),
    faulty("http", 3, Fault::HttpAnswer, "not-tls"),
    faulty("ssh", 3, Fault::SshBanner, "not-tls"),
    faulty("alert-handshake-failure", 3, Fault::Alert(40), "alert"),
    faulty("alert-unrecognized-name", 3, Fault::Alert(112), "alert"),
    faulty("alert-internal-error", 2, Fault::Alert(80), "alert"),
    faulty("closed-at-once", 3, Fault::CloseAtOnce, "closed-early"),
    faulty("closed-after-hello", 2, Fault::CloseAfterHello, "closed-early"),
    faulty("slow-drip", 2, Fault::Drip, "slow"),
    faulty("endless-handshake", 1, Fault::Endless, "limit-exceeded"),
    faulty("oversized-message", 1, Fault::Oversized, "limit-exceeded"),
];

/// Endpoints it takes to have each kind that `wanted` lets through.
pub(crate) fn least(wanted: impl Fn(&Kind) -> bool) -> usize {
    KINDS.iter().filter(|kind| wanted(kind)).map(|kind| kind.company.least()).sum()
}
