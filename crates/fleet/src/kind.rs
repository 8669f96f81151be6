//! Every kind of endpoint, one per line: its frequency, its certificate, its server, and the expected scan result.

use crate::key::SignedWith;
use crate::key_kind::KeyKind;

/// A kind of endpoint: its frequency, certificate, server, and expected scan result.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Stable name in the expected scan results.
    pub(crate) name: &'static str,
    /// Relative frequency of the kind in its family.
    pub(crate) weight: u32,
    pub(crate) family: Family,
    pub(crate) sharing: EndpointSharing,
    pub(crate) dns: Dns,
    pub(crate) leaf: Leaf,
    pub(crate) chain: Chain,
    pub(crate) serve: EndpointBehavior,
    pub(crate) outcome: &'static str,
    /// Expected findings for a single endpoint. Findings that depend on other endpoints are computed.
    pub(crate) findings: &'static [&'static str],
}

/// Group of kinds in a [`crate::Mix`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    /// TLS from the first byte, no findings.
    Healthy,
    /// Valid endpoints that need more than a simple probe: STARTTLS, several addresses, informational findings.
    Special,
    /// Endpoints that respond but have a fault.
    Flawed,
    /// Endpoints that show no certificate.
    Dead,
}

/// The sharing of addresses, certificates or keys between endpoints of a kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EndpointSharing {
    /// Nothing is shared.
    Alone,
    /// One host with this number of addresses and one certificate.
    Addresses(usize),
    /// One host with this number of addresses, each with its own certificate.
    Differing(usize),
    /// This number of hosts share a certificate; each has its own address.
    SharedCertificate(usize),
    /// This number of hosts share a key.
    SharedKey(usize),
    /// This number of names share one address and one wildcard certificate.
    Balancer(usize),
    /// This number of names share one address; SNI selects the certificate.
    VirtualHosts(usize),
}

impl EndpointSharing {
    /// Returns the number of endpoints in a group.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Alone | Self::Addresses(_) | Self::Differing(_) => 1,
            Self::SharedCertificate(n) | Self::SharedKey(n) | Self::VirtualHosts(n) => n,
            Self::Balancer(n) => n,
        }
    }

    /// Returns the minimum number of endpoints that show the property of the kind.
    pub(crate) fn least(self) -> usize {
        if self.size() > 1 { 3 } else { 1 }
    }
}

/// DNS configuration of an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Dns {
    Address,
    /// This number of CNAME records before the address.
    Aliases(usize),
    /// Addresses with this TTL in seconds.
    ShortLived(u32),
    NxDomain,
    /// The name exists but has no address.
    NoData,
    ServFail,
    Refused,
    Silent,
    Loop,
}

/// Content of an endpoint's leaf certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) key: KeyKind,
    /// Days from the start of the fleet to the start of the validity; negative in the past.
    pub(crate) from_days: i64,
    /// Lifetime of the certificate in days.
    pub(crate) life_days: i64,
    pub(crate) naming: Naming,
    pub(crate) serial: SerialForm,
    pub(crate) issuer: Issuer,
    pub(crate) signed_with: SignedWith,
}

/// Names in the leaf certificate of an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Naming {
    /// The host's name, as common name and alternative name.
    Own,
    /// Another endpoint's name, which does not match the host.
    Other,
    /// A wildcard for the host's parent domain.
    Wildcard,
    /// A common name without alternative names.
    CommonNameOnly,
    /// A common name of more than 64 characters.
    LongCommonName,
    /// The host's name and 99 other names.
    Hundred,
    /// The IP address; the target is the address, too.
    Address,
}

/// Kind of the serial number: random, or with a specific fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SerialForm {
    Random,
    Zero,
    Negative,
    TooLong,
    Short,
}

/// Issuer of the leaf.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Issuer {
    /// The fleet's intermediate; its root is in the trust store.
    Issuing,
    /// An RSA intermediate; its RSA root is in the trust store.
    Rsa,
    /// An intermediate whose root is not in the trust store.
    Private,
    /// An intermediate that has expired.
    Expired,
    /// An intermediate three levels below the root.
    Deep,
    /// An intermediate signed by two roots, one of which is in the trust store.
    Crossed,
    /// The leaf is self-signed.
    Oneself,
}

impl Issuer {
    /// All issuers except [`Self::Oneself`].
    pub(crate) const AUTHORITIES: [Self; 6] =
        [Self::Issuing, Self::Rsa, Self::Private, Self::Expired, Self::Deep, Self::Crossed];
}

/// The certificates sent with the leaf.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Chain {
    /// All certificates between leaf and root.
    Full,
    /// All certificates including the root.
    WithRoot,
    /// The leaf only.
    LeafAlone,
    /// A longer chain with the issuers in reverse order.
    Misordered,
    /// An unrelated intermediate at the end.
    Stray,
    /// The same intermediates repeated, up to this number of certificates.
    Huge(usize),
}

/// Supported TLS versions.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Versions {
    Both,
    Only12,
    Only13,
}

/// The protocol before the TLS handshake (STARTTLS).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum StarttlsProtocol {
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

impl StarttlsProtocol {
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

    /// Returns the URL scheme of the protocol.
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

/// A server with an obsolete configuration that no library here supports: it sends its plaintext handshake messages only.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Relic {
    /// TLS version on the wire: 0x0301 is TLS 1.0.
    pub(crate) version: u16,
    pub(crate) suite: u16,
}

/// Behavior of an endpoint after the connection is established.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum EndpointBehavior {
    Tls(Versions),
    /// TLS with ALPN for HTTP/2.
    H2,
    /// TLS with a stapled OCSP response.
    Stapled,
    /// TLS that requires a client certificate.
    ClientCertificate(Versions),
    /// TLS after a STARTTLS dialogue.
    StartTls(StarttlsProtocol),
    Relic(Relic),
    Fault(Fault),
}

/// Fault of an endpoint.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Fault {
    Refused,
    ResetAtOnce,
    ResetAfterHello,
    BlackHole,
    /// No data after the connection is accepted.
    Stall,
    /// No data after the ServerHello.
    StallAfterHello,
    HttpAnswer,
    SshBanner,
    /// A fatal alert with this code.
    Alert(u8),
    CloseAtOnce,
    /// The connection is closed after the ServerHello.
    CloseAfterHello,
    /// A valid handshake, sent at one byte per second.
    Drip,
    /// An endless sequence of handshake bytes.
    Endless,
    /// A Certificate message with a length of 16 MB.
    Oversized,
}

const fn leaf(key: KeyKind) -> Leaf {
    Leaf {
        key,
        from_days: -20,
        life_days: 90,
        naming: Naming::Own,
        serial: SerialForm::Random,
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

const fn numbered(serial: SerialForm) -> Leaf {
    Leaf { serial, ..P256 }
}

const fn kind(name: &'static str, weight: u32, family: Family) -> Kind {
    Kind {
        name,
        weight,
        family,
        sharing: EndpointSharing::Alone,
        dns: Dns::Address,
        leaf: P256,
        chain: Chain::Full,
        serve: EndpointBehavior::Tls(Versions::Both),
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

const fn upgraded(name: &'static str, upgrade: StarttlsProtocol) -> Kind {
    Kind { serve: EndpointBehavior::StartTls(upgrade), ..special(name, 2) }
}

const fn relic(
    name: &'static str,
    version: u16,
    suite: u16,
    leaf: Leaf,
    findings: &'static [&'static str],
) -> Kind {
    Kind { leaf, serve: EndpointBehavior::Relic(Relic { version, suite }), ..flawed(name, 1, findings) }
}

const fn unresolved(name: &'static str, weight: u32, dns: Dns, outcome: &'static str) -> Kind {
    Kind { dns, outcome, ..kind(name, weight, Family::Dead) }
}

const fn faulty(name: &'static str, weight: u32, fault: Fault, outcome: &'static str) -> Kind {
    Kind { serve: EndpointBehavior::Fault(fault), outcome, ..kind(name, weight, Family::Dead) }
}

use EndpointBehavior::{ClientCertificate, Tls};

/// All kinds of endpoints.
#[rustfmt::skip]
pub(crate) static KINDS: &[Kind] = &[
    // Healthy
    healthy("p256", 600),
    Kind { leaf: leaf(KeyKind::P384), ..healthy("p384", 10) },
    Kind { leaf: leaf(KeyKind::Ed25519), ..healthy("ed25519", 5) },
    Kind { leaf: leaf(KeyKind::Rsa2048), ..healthy("rsa-2048", 8) },
    Kind { leaf: Leaf { issuer: Issuer::Rsa, ..leaf(KeyKind::Rsa2048) }, ..healthy("rsa-chain", 8) },
    Kind { serve: Tls(Versions::Only12), ..healthy("tls-1.2-only", 60) },
    Kind { serve: Tls(Versions::Only13), ..healthy("tls-1.3-only", 60) },
    Kind { serve: EndpointBehavior::H2, ..healthy("alpn-h2", 60) },
    Kind { serve: EndpointBehavior::Stapled, ..healthy("ocsp-stapled", 20) },
    Kind { leaf: issued(Issuer::Deep), ..healthy("long-chain", 10) },
    Kind { leaf: issued(Issuer::Crossed), ..healthy("cross-signed", 10) },
    Kind { chain: Chain::WithRoot, ..healthy("root-sent", 10) },
    Kind { leaf: dated(-1, 6), ..healthy("six-days", 10) },
    Kind { leaf: named(Naming::Hundred), ..healthy("hundred-names", 5) },
    Kind { dns: Dns::Aliases(3), ..healthy("cname-chain", 20) },
    Kind { dns: Dns::ShortLived(1), ..healthy("short-ttl", 10) },
    Kind { dns: Dns::ShortLived(0), ..healthy("zero-ttl", 5) },
    Kind { sharing: EndpointSharing::Addresses(3), ..healthy("three-addresses", 10) },
    Kind { serve: ClientCertificate(Versions::Only12), ..healthy("client-certificate-1.2", 5) },
    Kind { serve: ClientCertificate(Versions::Only13), ..healthy("client-certificate-1.3", 5) },
    Kind { sharing: EndpointSharing::VirtualHosts(2), ..healthy("virtual-hosts", 10) },
    // Valid, but special
    Kind { leaf: named(Naming::Address), ..special("address", 5) },
    Kind { sharing: EndpointSharing::Balancer(200), leaf: named(Naming::Wildcard), findings: &["certificate.wildcard"], ..special("balancer", 100) },
    Kind { leaf: named(Naming::Wildcard), findings: &["certificate.wildcard"], ..special("wildcard", 20) },
    Kind { sharing: EndpointSharing::SharedCertificate(3), ..special("shared-certificate", 10) },
    upgraded("starttls-smtp", StarttlsProtocol::Smtp),
    upgraded("starttls-lmtp", StarttlsProtocol::Lmtp),
    upgraded("starttls-imap", StarttlsProtocol::Imap),
    upgraded("starttls-pop3", StarttlsProtocol::Pop3),
    upgraded("starttls-sieve", StarttlsProtocol::Sieve),
    upgraded("starttls-ftp", StarttlsProtocol::Ftp),
    upgraded("starttls-ldap", StarttlsProtocol::Ldap),
    upgraded("starttls-postgres", StarttlsProtocol::Postgres),
    upgraded("starttls-mysql", StarttlsProtocol::Mysql),
    upgraded("starttls-xmpp", StarttlsProtocol::Xmpp),
    upgraded("starttls-nntp", StarttlsProtocol::Nntp),
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
    Kind { sharing: EndpointSharing::SharedKey(3), ..flawed("shared-key", 9, &[]) },
    Kind { sharing: EndpointSharing::Differing(2), ..flawed("differs-across-addresses", 3, &[]) },
    // Wrong serial numbers
    Kind { leaf: numbered(SerialForm::Zero), ..flawed("serial-zero", 1, &["certificate.serial-zero"]) },
    Kind { leaf: numbered(SerialForm::Negative), ..flawed("serial-negative", 1, &["certificate.serial-negative"]) },
    Kind { leaf: numbered(SerialForm::TooLong), ..flawed("serial-too-long", 1, &["certificate.serial-too-long"]) },
    Kind { leaf: numbered(SerialForm::Short), ..flawed("serial-short", 1, &["certificate.serial-short"]) },
    // Obsolete servers
    relic("tls-1.0-relic", 0x0301, 0x002f, leaf(KeyKind::Rsa2048), &["protocol.no-forward-secrecy", "protocol.obsolete"]),
    relic("tls-1.1-relic", 0x0302, 0x002f, leaf(KeyKind::Rsa2048), &["protocol.no-forward-secrecy", "protocol.obsolete"]),
    relic("static-rsa", 0x0303, 0x009c, leaf(KeyKind::Rsa2048), &["protocol.no-forward-secrecy"]),
    relic("rsa-512-md5", 0x0301, 0x0004, Leaf { issuer: Issuer::Rsa, signed_with: SignedWith::Md5, ..leaf(KeyKind::Rsa512) }, &["certificate.weak-key", "certificate.weak-signature", "chain.invalid", "protocol.no-forward-secrecy", "protocol.obsolete", "protocol.weak-cipher"]),
    relic("dsa", 0x0301, 0x0032, leaf(KeyKind::Dsa1024), &["certificate.weak-key", "protocol.obsolete"]),
    // More certificates than a scanner reads. The scanner still reads the leaf, which is first.
    Kind { chain: Chain::Huge(100), ..flawed("hundred-certificates", 1, &[]) },
    // DNS failures
    unresolved("nxdomain", 12, Dns::NxDomain, "nxdomain"),
    unresolved("no-address", 2, Dns::NoData, "no-address"),
    unresolved("servfail", 4, Dns::ServFail, "servfail"),
    unresolved("dns-refused", 1, Dns::Refused, "dns-refused"),
    unresolved("dns-timeout", 4, Dns::Silent, "dns-timeout"),
    unresolved("cname-loop", 2, Dns::Loop, "cname-loop"),
    // Dead or broken
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

/// Returns the number of endpoints needed for one of each kind that `wanted` accepts.
pub(crate) fn least(wanted: impl Fn(&Kind) -> bool) -> usize {
    KINDS.iter().filter(|kind| wanted(kind)).map(|kind| kind.sharing.least()).sum()
}
