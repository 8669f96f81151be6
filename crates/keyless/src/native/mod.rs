//! The native protocol: gRPC over HTTP/2, with deadline, tenant and trace in every request, batches and streams. Its definition is
//! `proto/bulla/keys/v1/keys.proto`.

mod client;

use std::time::Duration;

use keys::{Hash, Scheme};
use tonic::Code;

pub use client::{CallOptions, Client, ClientError, signature};
pub use telemetry::spans::{TRACEPARENT, TraceParent};

/// Messages, client and server, generated from the protocol's definition. The generated code is checked in, so that a build needs
/// no protobuf compiler. A test generates the code again and compares.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod proto {
    include!("bulla.keys.v1.rs");
}

/// Returns the signature scheme of a protobuf value; `None` if it is unspecified.
#[must_use]
pub fn scheme_of(scheme: proto::Scheme) -> Option<Scheme> {
    SCHEMES.iter().find(|(proto_scheme, _)| *proto_scheme == scheme).map(|(_, scheme)| *scheme)
}

/// Returns the protobuf value of a signature scheme.
#[must_use]
pub fn proto_scheme(scheme: Scheme) -> proto::Scheme {
    let found = SCHEMES.iter().find(|(_, known)| *known == scheme);
    found.map_or(proto::Scheme::Unspecified, |(proto_scheme, _)| *proto_scheme)
}

const SCHEMES: [(proto::Scheme, Scheme); 16] = [
    (proto::Scheme::RsaPkcs1Sha256, Scheme::RsaPkcs1(Hash::Sha256)),
    (proto::Scheme::RsaPkcs1Sha384, Scheme::RsaPkcs1(Hash::Sha384)),
    (proto::Scheme::RsaPkcs1Sha512, Scheme::RsaPkcs1(Hash::Sha512)),
    (proto::Scheme::RsaPssSha256, Scheme::RsaPss(Hash::Sha256)),
    (proto::Scheme::RsaPssSha384, Scheme::RsaPss(Hash::Sha384)),
    (proto::Scheme::RsaPssSha512, Scheme::RsaPss(Hash::Sha512)),
    (proto::Scheme::EcdsaSha256, Scheme::Ecdsa(Hash::Sha256)),
    (proto::Scheme::EcdsaSha384, Scheme::Ecdsa(Hash::Sha384)),
    (proto::Scheme::EcdsaSha512, Scheme::Ecdsa(Hash::Sha512)),
    (proto::Scheme::Ed25519, Scheme::Ed25519),
    (proto::Scheme::RsaPkcs1Sha1, Scheme::RsaPkcs1(Hash::Sha1)),
    (proto::Scheme::RsaPkcs1Sha224, Scheme::RsaPkcs1(Hash::Sha224)),
    (proto::Scheme::RsaPkcs1Md5Sha1, Scheme::RsaPkcs1(Hash::Md5Sha1)),
    (proto::Scheme::EcdsaSha1, Scheme::Ecdsa(Hash::Sha1)),
    (proto::Scheme::EcdsaSha224, Scheme::Ecdsa(Hash::Sha224)),
    (proto::Scheme::EcdsaMd5Sha1, Scheme::Ecdsa(Hash::Md5Sha1)),
];

/// Parses a `grpc-timeout`: up to eight digits and a unit (gRPC over HTTP/2, "Requests"). `None` if invalid.
#[must_use]
pub fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Returns a status code's name in metrics.
pub(crate) const fn code_name(code: Code) -> &'static str {
    match code {
        Code::InvalidArgument => "invalid-argument",
        Code::NotFound => "not-found",
        Code::ResourceExhausted => "resource-exhausted",
        Code::DeadlineExceeded => "deadline-exceeded",
        Code::FailedPrecondition => "failed-precondition",
        Code::Unavailable => "unavailable",
        Code::Cancelled => "cancelled",
        _ => "internal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_timeout_text_never_panics(text: String) {
            let _ = grpc_timeout(&text);
        }
    }

    #[test]
    fn schemes_map_one_to_one_to_proto_schemes() {
        for number in 1..=16 {
            let name = proto::Scheme::try_from(number).unwrap();
            assert_eq!(scheme_of(name).map(proto_scheme), Some(name));
        }
        assert!(proto::Scheme::try_from(17).is_err());
        assert_eq!(scheme_of(proto::Scheme::Unspecified), None);
        assert_eq!(proto_scheme(Scheme::RsaPss(Hash::Sha1)), proto::Scheme::Unspecified);
    }

    #[test]
    fn grpc_timeout_is_parsed_or_rejected() {
        for (text, wanted) in [
            ("1S", Some(Duration::from_secs(1))),
            ("100m", Some(Duration::from_millis(100))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("0n", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("+1S", None),
            ("-1S", None),
            ("999999999S", None),
            ("1 S", None),
            ("1é", None),
            ("é", None),
        ] {
            assert_eq!(grpc_timeout(text), wanted, "{text:?}");
        }
    }
}
