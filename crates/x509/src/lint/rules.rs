//! The rules for certificates. Codes never change once released.
//!
//! `BR` means the CA/Browser Forum's Baseline Requirements for TLS server certificates, version 2.

use crate::{Rule, Severity};

macro_rules! rules {
    ($($name:ident = $code:literal, $severity:ident, $title:literal, $source:literal, $advice:literal;)*) => {
        $(
            #[doc = $title]
            pub static $name: Rule = Rule {
                code: concat!("certificate.", $code),
                severity: Severity::$severity,
                title: $title,
                source: $source,
                advice: $advice,
            };
        )*
        /// All rules of this module.
        pub static RULES: &[&Rule] = &[$(&$name),*];
    };
}

rules! {
    EXPIRED = "expired", Critical,
        "expired",
        "RFC 5280 section 4.1.2.5",
        "Replace the certificate now: every client rejects it.";
    NOT_YET_VALID = "not-yet-valid", Critical,
        "not valid yet",
        "RFC 5280 section 4.1.2.5",
        "Check the clock of the issuer and of this machine, or deploy the certificate later.";
    VALIDITY_INVERTED = "validity-inverted", Critical,
        "the validity period ends before it begins",
        "RFC 5280 section 4.1.2.5",
        "Reissue the certificate: it is valid at no time.";
    EXPIRING = "expiring", Medium,
        "expires soon",
        "RFC 5280 section 4.1.2.5",
        "Renew the certificate, and find out why automatic renewal did not.";
    EXPIRING_FRACTION = "expiring-fraction", Medium,
        "short-lived and in the last part of its lifetime",
        "RFC 5280 section 4.1.2.5",
        "Short-lived certificates are renewed after two thirds of their lifetime: find out why this one was not.";
    WEAK_KEY = "weak-key", High,
        "weak public key",
        "BR section 6.1.5",
        "Generate a new key: RSA of 2,048 bits or more, or ECDSA on P-256.";
    WEAK_EXPONENT = "weak-exponent", Low,
        "RSA exponent other than recommended",
        "BR section 6.1.6",
        "Generate a new key with the exponent 65537.";
    ODD_KEY_SIZE = "odd-key-size", Low,
        "RSA key size is not a multiple of 8",
        "BR section 6.1.5",
        "Generate a new key of 2,048, 3,072 or 4,096 bits: some software supports no other size.";
    WEAK_SIGNATURE = "weak-signature", Critical,
        "signed with MD5 or MD2",
        "RFC 6151 section 2.1, BR section 7.1.3.2",
        "Reissue the certificate with SHA-256: signatures like this one can be forged.";
    SHA1_SIGNATURE = "sha1-signature", High,
        "signed with SHA-1",
        "RFC 9155 section 2, BR section 7.1.3.2",
        "Reissue the certificate with SHA-256: clients reject SHA-1.";
    LIFETIME_PUBLIC = "lifetime-public", High,
        "publicly trusted and valid longer than allowed",
        "BR section 6.3.2",
        "Reissue the certificate with a shorter lifetime: browsers reject this one, even before it expires.";
    LIFETIME = "lifetime", Info,
        "private and valid longer than 825 days",
        "BR section 6.3.2 (ballot 193)",
        "Issue for 825 days or less if Apple clients connect: they reject longer lifetimes, also from private CAs.";
    NO_SAN = "no-san", High,
        "publicly trusted without a subject alternative name for a host",
        "RFC 9525 section 2, BR section 7.1.2.7.12",
        "Put the host into a subject alternative name: clients ignore the common name.";
    COMMON_NAME_ONLY = "common-name-only", Medium,
        "private certificate without a subject alternative name for a host",
        "RFC 9525 section 2",
        "Put the host into a subject alternative name: browsers, Go and Java ignore the common name.";
    COMMON_NAME_NOT_IN_SAN = "common-name-not-in-san", Low,
        "common name missing from the alternative names",
        "BR section 7.1.4.3",
        "Add the common name to the alternative names, or remove it: clients ignore it.";
    COMMON_NAME_TOO_LONG = "common-name-too-long", Low,
        "common name over 64 characters",
        "RFC 5280 appendix A.1 (ub-common-name)",
        "Use a shorter common name, or none.";
    SERIAL_ZERO = "serial-zero", Low,
        "serial number 0",
        "RFC 5280 section 4.1.2.2",
        "Reissue the certificate with a positive serial number.";
    SERIAL_NEGATIVE = "serial-negative", Medium,
        "negative serial number",
        "RFC 5280 section 4.1.2.2",
        "Reissue the certificate: Go clients since version 1.23 reject it.";
    SERIAL_TOO_LONG = "serial-too-long", Low,
        "serial number over 20 bytes",
        "RFC 5280 section 4.1.2.2",
        "Reissue the certificate: some software supports 20 bytes at most.";
    SERIAL_SHORT = "serial-short", Low,
        "serial number too short to be unguessable",
        "BR section 7.1",
        "Configure the CA to use serial numbers with 64 random bits or more.";
    WILDCARD = "wildcard", Info,
        "wildcard",
        "RFC 9525 section 7.1",
        "Check which machines have the key: each of them can impersonate every host that the wildcard covers.";
    WILDCARD_BAD = "wildcard-bad", Medium,
        "wildcard that clients do not accept",
        "RFC 9525 section 6.3",
        "A wildcard must be the whole leftmost label, and the domain below it must be a registered domain or a subdomain.";
    NOT_SERVER_AUTH = "not-server-auth", High,
        "not for TLS servers",
        "RFC 5280 section 4.2.1.12",
        "Reissue the certificate with the extended key usage serverAuth.";
    LEAF_IS_CA = "leaf-is-ca", Medium,
        "CA certificate used by a server",
        "BR section 7.1.2.7.8",
        "Use a leaf certificate issued by this CA instead: an attacker on this server can sign for any host that clients \
         trust the CA for.";
    CERT_SIGN_WITHOUT_CA = "cert-sign-without-ca", Low,
        "may sign certificates but is not a CA",
        "RFC 5280 section 4.2.1.9",
        "Reissue the certificate without keyCertSign.";
    CONSTRAINTS_WITHOUT_CA = "constraints-without-ca", Low,
        "name constraints in a certificate that is not a CA",
        "RFC 5280 section 4.2.1.10",
        "Reissue the certificate without name constraints: they apply to CAs only.";
    CA_WITHOUT_CERT_SIGN = "ca-without-cert-sign", High,
        "CA whose key usage has no keyCertSign",
        "RFC 5280 section 4.2.1.3",
        "Reissue the CA certificate with keyCertSign.";
    OLD_VERSION = "version-1", Medium,
        "older than X.509 version 3",
        "RFC 5280 section 4.1.2.1, BR section 7.1.1",
        "Reissue the certificate as version 3: without extensions it cannot name a host.";
    NO_AUTHORITY_KEY_ID = "no-authority-key-id", Low,
        "no authority key identifier",
        "RFC 5280 section 4.2.1.1",
        "Configure the CA to add the extension: path building is faster and cross-signing works.";
    NO_SUBJECT_KEY_ID = "no-subject-key-id", Low,
        "CA without a subject key identifier",
        "RFC 5280 section 4.2.1.2",
        "Reissue the CA certificate with the extension.";
    SAN_INVALID = "san-invalid", Medium,
        "alternative name that is not a host name",
        "RFC 5280 section 4.2.1.6",
        "Reissue the certificate with a correct name; no client matches this one.";
    SAN_UNDERSCORE = "san-underscore", Low,
        "alternative name with an underscore",
        "BR section 7.1.2.7.12",
        "Rename the host: public CAs must not certify underscores.";
    SAN_ADDRESS_AS_DNS = "san-address-as-dns", Medium,
        "IP address written as a DNS name",
        "RFC 5280 section 4.2.1.6",
        "Put the IP address into an iPAddress entry: clients ignore addresses in DNS names.";
    SAN_BAD_ADDRESS = "san-bad-address", Medium,
        "IP address with a wrong length",
        "RFC 5280 section 4.2.1.6",
        "An iPAddress entry has 4 or 16 bytes; a mask is allowed in name constraints only.";
    INTERNAL_NAME = "internal-name", Info,
        "publicly trusted certificate for an internal name",
        "BR section 7.1.2.7.12",
        "Use a private CA for names that are not in the public DNS.";
    PRECERTIFICATE = "precertificate", Critical,
        "a precertificate is served",
        "RFC 6962 section 3.1",
        "Deploy the final certificate: the poison extension makes every client reject this one.";
    UNKNOWN_CRITICAL = "unknown-critical", High,
        "unknown or unreadable critical extension",
        "RFC 5280 section 4.2",
        "Reissue the certificate without the extension: clients must reject unknown critical extensions.";
    EMPTY_ISSUER = "empty-issuer", Medium,
        "issuer without a name",
        "RFC 5280 section 4.1.2.4",
        "Give the CA a subject name.";
    KEY_USAGE = "key-usage", High,
        "elliptic curve key that is not allowed to sign",
        "RFC 8446 section 4.4.2.2",
        "Reissue the certificate with digitalSignature: TLS uses such keys to sign.";
    MALFORMED = "malformed", Medium,
        "violates the encoding rules (DER)",
        "RFC 5280 section 4.1, X.690",
        "Reissue the certificate with correct software: strict clients reject this one.";
}

macro_rules! nearer {
    ($($name:ident = $of:ident, $severity:ident;)*) => {
        $(
            #[doc = concat!("[`", stringify!($of), "`], nearer to the end.")]
            pub static $name: Rule = Rule {
                code: $of.code,
                severity: Severity::$severity,
                title: $of.title,
                source: $of.source,
                advice: $of.advice,
            };
        )*
    };
}

// The expiry rules again, with the higher severities of `EXPIRY_THRESHOLDS`. `RULES` contains each code only once.
nearer! {
    EXPIRING_HIGH = EXPIRING, High;
    EXPIRING_CRITICAL = EXPIRING, Critical;
    EXPIRING_FRACTION_HIGH = EXPIRING_FRACTION, High;
    EXPIRING_FRACTION_CRITICAL = EXPIRING_FRACTION, Critical;
}
