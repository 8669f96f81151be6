//! The rules for an endpoint, its chain and all endpoints together. The rules for a single certificate are in `x509`.

use x509::{Rule, Severity};

/// No subject alternative name matches the requested name.
pub static NAME_MISMATCH: Rule = Rule {
    code: "endpoint.name-mismatch",
    severity: Severity::Critical,
    title: "certificate is for another name",
    source: "RFC 9525 section 6.3; RFC 9110 section 4.3.4",
    advice: "issue a certificate whose subject alternative names include this name, or point the name to another server",
};
/// The handshake's signature cannot be verified with the leaf's key.
pub static KEY_NOT_PROVEN: Rule = Rule {
    code: "endpoint.key-not-proven",
    severity: Severity::Critical,
    title: "server did not prove that it has the private key",
    source: "RFC 8446 section 4.4.3; RFC 5246 section 7.4.3",
    advice: "check that the server's key matches its certificate, and that no interception proxy is in the path",
};
/// The certificate requires a stapled OCSP response (must-staple), but none is sent.
pub static STAPLE_MISSING: Rule = Rule {
    code: "endpoint.staple-missing",
    severity: Severity::High,
    title: "certificate requires an OCSP staple and none was sent",
    source: "RFC 7633 section 4.2.3",
    advice: "turn OCSP stapling on, or issue the certificate without the TLS feature extension",
};
/// The stapled response reports the certificate as revoked.
pub static STAPLE_REVOKED: Rule = Rule {
    code: "endpoint.staple-revoked",
    severity: Severity::Critical,
    title: "the stapled OCSP response says revoked",
    source: "RFC 6960 section 2.2",
    advice: "replace the certificate now",
};
/// The stapled response is past its nextUpdate.
pub static STAPLE_STALE: Rule = Rule {
    code: "endpoint.staple-stale",
    severity: Severity::Medium,
    title: "the stapled OCSP response is out of date",
    source: "RFC 6960 section 4.2.2.1",
    advice: "check that the server can reach its OCSP responder",
};
/// A CRL, an OCSP responder or the stapled response reports the certificate as revoked.
pub static REVOKED: Rule = Rule {
    code: "endpoint.revoked",
    severity: Severity::Critical,
    title: "certificate is revoked but still served or stored",
    source: "RFC 5280 section 6.3; RFC 6960 section 2.2",
    advice: "replace the certificate now, and use a new key if the old key may be compromised",
};
/// The server sent plaintext after agreeing to STARTTLS.
pub static PLAINTEXT_INJECTED: Rule = Rule {
    code: "endpoint.plaintext-injected",
    severity: Severity::High,
    title: "plain text was sent after the switch to TLS",
    source: "RFC 3207 section 6; CVE-2011-0411",
    advice: "update the server: it buffers commands across STARTTLS",
};
/// The leaf is self-signed and not a trust anchor.
pub static SELF_SIGNED: Rule = Rule {
    code: "chain.self-signed",
    severity: Severity::High,
    title: "certificate is self-signed",
    source: "RFC 5280 section 6.1",
    advice: "issue a certificate from a CA that your clients trust, or pass the certificate with --ca",
};
/// The chain ends at a root that is not a trust anchor.
pub static UNTRUSTED: Rule = Rule {
    code: "chain.untrusted-root",
    severity: Severity::High,
    title: "chain ends at a root that is not trusted",
    source: "RFC 5280 section 6.1.1 (d)",
    advice: "if the root is yours, pass it with --ca; if the evidence names an intermediate, serve the intermediate too; \
     otherwise issue from a CA that your clients trust",
};
/// The leaf's issuer is neither sent by the server nor known.
pub static INCOMPLETE: Rule = Rule {
    code: "chain.incomplete",
    severity: Severity::High,
    title: "an intermediate certificate is missing",
    source: "RFC 8446 section 4.4.2",
    advice: "serve the full chain (fullchain.pem, not cert.pem)",
};
/// An issuer certificate has expired, and there is no other path.
pub static EXPIRED_INTERMEDIATE: Rule = Rule {
    code: "chain.expired-intermediate",
    severity: Severity::Critical,
    title: "a CA certificate in the chain has expired",
    source: "RFC 5280 section 6.1.3 (a)(2)",
    advice: "serve the current intermediate; the CA publishes it",
};
/// No path is valid because of a signature, constraint or extension.
pub static INVALID: Rule = Rule {
    code: "chain.invalid",
    severity: Severity::High,
    title: "chain breaks a rule of path validation",
    source: "RFC 5280 section 6.1",
    advice: "the evidence names the certificate and the rule; reissue that certificate",
};
/// A certificate in the chain is not followed by its issuer.
pub static MISORDERED: Rule = Rule {
    code: "chain.misordered",
    severity: Severity::Low,
    title: "chain is out of order",
    source: "RFC 5246 section 7.4.2; RFC 8446 section 4.4.2",
    advice: "serve the leaf first, then each certificate's issuer; TLS 1.2 clients may reject any other order",
};
/// The chain contains certificates that belong to no path.
pub static STRAY: Rule = Rule {
    code: "chain.stray",
    severity: Severity::Low,
    title: "chain contains a certificate that is not on any path",
    source: "RFC 8446 section 4.4.2",
    advice: "remove the certificate from the chain file; it makes every handshake larger",
};
/// The chain contains an entry that is not a certificate.
pub static UNREADABLE: Rule = Rule {
    code: "chain.unreadable",
    severity: Severity::High,
    title: "the chain contains data that is not a certificate",
    source: "RFC 5280 section 4.1",
    advice: "rebuild the chain file from certificates only",
};
/// The server chooses or accepts TLS 1.1 or earlier.
pub static OBSOLETE_PROTOCOL: Rule = Rule {
    code: "protocol.obsolete",
    severity: Severity::High,
    title: "server accepts TLS 1.1 or earlier",
    source: "RFC 8996 sections 4 and 5",
    advice: "turn off TLS 1.0 and 1.1; turn on TLS 1.2 and 1.3",
};
/// The server chooses or accepts a broken cipher suite.
pub static WEAK_CIPHER: Rule = Rule {
    code: "protocol.weak-cipher",
    severity: Severity::High,
    title: "server accepts a broken cipher suite",
    source: "RFC 7465; RFC 9325 section 4.1",
    advice: "allow AEAD suites with (EC)DHE key exchange only",
};
/// The server chooses or accepts RSA key transport.
pub static NO_FORWARD_SECRECY: Rule = Rule {
    code: "protocol.no-forward-secrecy",
    severity: Severity::Medium,
    title: "server accepts a cipher suite without forward secrecy",
    source: "RFC 9325 section 4.1",
    advice: "turn off cipher suites with static RSA key exchange (TLS_RSA_…)",
};
/// The server fails when TLS 1.3 is offered.
pub static VERSION_INTOLERANT: Rule = Rule {
    code: "protocol.version-intolerant",
    severity: Severity::Medium,
    title: "server fails when a client offers TLS 1.3",
    source: "RFC 8446 section 4.2.1; RFC 5246 appendix E.1",
    advice: "update the server or the middlebox in front of it: it must ignore unknown values",
};
/// Several certificates have the same key.
pub static SHARED_KEY: Rule = Rule {
    code: "estate.shared-key",
    severity: Severity::Medium,
    title: "several certificates share one private key",
    source: "NIST SP 800-57 part 1 section 5.2; RFC 4210 appendix B",
    advice: "generate a new key for each certificate and at each renewal",
};
/// Several hosts have the same certificate.
pub static SHARED_CERTIFICATE: Rule = Rule {
    code: "estate.shared-certificate",
    severity: Severity::Info,
    title: "several hosts serve one certificate",
    source: "NIST SP 1800-16B section 5.1",
    advice: "replace the certificate on all hosts together; a leaked key affects all of them",
};
/// The addresses of a name serve different certificates.
pub static DIFFERS: Rule = Rule {
    code: "estate.differs-across-addresses",
    severity: Severity::Medium,
    title: "addresses of one name serve different certificates",
    source: "NIST SP 1800-16B section 5.1",
    advice: "find the node that was missed in the last rollout",
};

/// Every rule of this crate, in the order of the documentation.
pub static RULES: &[&Rule] = &[
    &NAME_MISMATCH,
    &KEY_NOT_PROVEN,
    &STAPLE_MISSING,
    &STAPLE_REVOKED,
    &STAPLE_STALE,
    &REVOKED,
    &PLAINTEXT_INJECTED,
    &SELF_SIGNED,
    &UNTRUSTED,
    &INCOMPLETE,
    &EXPIRED_INTERMEDIATE,
    &INVALID,
    &MISORDERED,
    &STRAY,
    &UNREADABLE,
    &OBSOLETE_PROTOCOL,
    &WEAK_CIPHER,
    &NO_FORWARD_SECRECY,
    &VERSION_INTOLERANT,
    &SHARED_KEY,
    &SHARED_CERTIFICATE,
    &DIFFERS,
];
