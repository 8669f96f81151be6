//! DNS UPDATE (RFC 2136), signed with TSIG (RFC 8945).

use std::net::SocketAddr;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::{BoxFuture, FutureExt};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode, UpdateMessage as _};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::rdata::tsig::{self, TsigError};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType, TSigVerifier, TSigner};
use keys::Secret;

use super::config::TsigAlgorithm;
use super::lookup::{Dns, exchange};
use super::publisher::{PublishError, Publisher, TxtRecord};
use crate::error::IssuerError;

/// Allowed difference of the clocks in seconds (RFC 8945 section 10).
const FUDGE_SECONDS: u16 = 300;

/// A primary name server that accepts updates.
pub(super) struct Rfc2136 {
    server: SocketAddr,
    zone: Option<Name>,
    /// Contains the shared key. It is not erased when dropped, because hickory's type does not support that.
    signer: TSigner,
}

impl std::fmt::Debug for Rfc2136 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rfc2136")
            .field("server", &self.server)
            .field("zone", &self.zone)
            .finish_non_exhaustive()
    }
}

impl Rfc2136 {
    pub(super) fn new(
        server: SocketAddr,
        zone: Option<&str>,
        key_name: &str,
        algorithm: TsigAlgorithm,
        secret: &Secret,
    ) -> Result<Self, IssuerError> {
        let bad = |what: &str| IssuerError::misconfigured(format!("dns01.publisher.{what}"));
        let key = STANDARD.decode(secret.expose().trim()).map_err(|_| bad("tsig_secret is not base64"))?;
        let algorithm = match algorithm {
            TsigAlgorithm::HmacSha256 => tsig::TsigAlgorithm::HmacSha256,
            TsigAlgorithm::HmacSha512 => tsig::TsigAlgorithm::HmacSha512,
        };
        let key_name = parse_absolute_name(key_name).ok_or_else(|| bad("tsig_name is not a domain name"))?;
        let zone = zone.map(|zone| parse_absolute_name(zone).ok_or_else(|| bad("zone is not a domain name")));
        Ok(Self {
            server,
            zone: zone.transpose()?,
            signer: TSigner::new(key, algorithm, key_name, FUDGE_SECONDS)
                .map_err(|error| bad(&error.to_string()))?,
        })
    }

    async fn change(
        &self,
        record: &TxtRecord,
        class: DNSClass,
        ttl: u32,
        deadline: Instant,
    ) -> Result<(), PublishError> {
        let zone = match &self.zone {
            Some(zone) => zone.clone(),
            None => {
                let found = Dns::query_zone(self.server, &record.name, deadline).await?;
                parse_absolute_name(&found).ok_or_else(|| PublishError(format!("{found} is not a zone")))?
            }
        };
        let (message, mut verifier) = update(&zone, record, class, ttl, &self.signer, system_time_seconds())?;
        let answer = exchange(self.server, &message, deadline).await?;
        let (code, checked) = check(&answer, &mut verifier)?;
        match code {
            ResponseCode::NoError => checked,
            // The result of the signature check is more specific than this error.
            ResponseCode::NotAuth => checked.and(Err(PublishError(format!(
                "{} is not authoritative for {}",
                self.server,
                shown(&zone)
            )))),
            ResponseCode::Refused => Err(PublishError(format!(
                "{} refuses the update: allow the TSIG key in the zone's update-policy",
                self.server
            ))),
            ResponseCode::NotZone => {
                Err(PublishError(format!("{} is not in the zone {}", record.name, shown(&zone))))
            }
            code => {
                Err(PublishError(format!("{} answers the update with code {}", self.server, u16::from(code))))
            }
        }
    }
}

/// Returns the system time, which TSIG requires even when the caller uses another clock.
fn system_time_seconds() -> u64 {
    u64::try_from(store::Clock::system().now_seconds()).unwrap_or(0)
}

/// Parses a configured name as absolute. `None` for an invalid name and for the root.
fn parse_absolute_name(text: &str) -> Option<Name> {
    let mut name = Name::from_ascii(text).ok()?;
    name.set_fqdn(true);
    (!name.is_root()).then_some(name)
}

fn shown(zone: &Name) -> String {
    zone.to_ascii().trim_end_matches('.').to_owned()
}

/// Builds the signed message of RFC 2136 section 2 with one zone and one change, and the verifier of its response.
fn update(
    zone: &Name,
    record: &TxtRecord,
    class: DNSClass,
    ttl: u32,
    signer: &TSigner,
    now: u64,
) -> Result<(Vec<u8>, TSigVerifier), PublishError> {
    let too_long = || PublishError(format!("{} or its TXT value is too long for DNS", record.name));
    let mut id = [0; 2];
    aws_lc_rs::rand::fill(&mut id).map_err(|error| PublishError(error.to_string()))?;
    let mut message = Message::new(u16::from_be_bytes(id), MessageType::Query, OpCode::Update);
    message.add_zone(Query::query(zone.clone(), RecordType::SOA));
    let text = RData::TXT(TXT::new(vec![record.value.clone()]));
    let mut change = Record::from_rdata(parse_absolute_name(&record.name).ok_or_else(too_long)?, ttl, text);
    change.dns_class = class;
    message.add_update(change);
    let verifier = message.finalize(signer, now).map_err(|_| too_long())?;
    let verifier = verifier.ok_or_else(|| PublishError("the update was not signed".to_owned()))?;
    Ok((message.to_vec().map_err(|_| too_long())?, verifier))
}

/// Returns the response code, and whether the server signed the response (RFC 8945 section 5.3).
fn check(
    answer: &[u8],
    verifier: &mut TSigVerifier,
) -> Result<(ResponseCode, Result<(), PublishError>), PublishError> {
    let message = Message::from_vec(answer)
        .map_err(|error| PublishError(format!("the response cannot be parsed: {error}")))?;
    let checked = match message.signature().map(|signature| signature.data.error) {
        None => Err("the response has no readable signature".to_owned()),
        Some(None) => match verifier.verify(answer) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the signature of the response is not from the server: {error}")),
        },
        Some(Some(TsigError::BadSig)) => {
            Err("the server returned BADSIG: the TSIG secret does not match".to_owned())
        }
        Some(Some(TsigError::BadKey)) => {
            Err("the server returned BADKEY: the TSIG key is unknown to the server".to_owned())
        }
        Some(Some(TsigError::BadTime)) => Err("the server returned BADTIME: the clocks differ".to_owned()),
        Some(Some(other)) => {
            Err(format!("the server rejects the signature: TSIG error {}", u16::from(other)))
        }
    };
    Ok((message.metadata.response_code, checked.map_err(PublishError)))
}

impl Publisher for Rfc2136 {
    fn publish<'a>(
        &'a self,
        record: &'a TxtRecord,
        ttl: u32,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        self.change(record, DNSClass::IN, ttl, deadline).boxed()
    }

    // Class NONE deletes the record with the same data (RFC 2136 section 2.5.4).
    fn remove<'a>(
        &'a self,
        record: &'a TxtRecord,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        self.change(record, DNSClass::NONE, 0, deadline).boxed()
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::TSigResponseContext;

    use super::*;

    const SENT: u64 = 1_000;

    fn publisher(key_name: &str, zone: Option<&str>, secret: &str) -> Result<Rfc2136, IssuerError> {
        let server = ([127, 0, 0, 1], 53).into();
        Rfc2136::new(server, zone, key_name, TsigAlgorithm::HmacSha256, &Secret::new(secret))
    }

    fn signer() -> TSigner {
        publisher("key.example.", None, "MDEyMzQ1Njc4OWFiY2RlZg==").unwrap().signer
    }

    fn signed_update(value: &str) -> Result<(Vec<u8>, TSigVerifier), PublishError> {
        let record = TxtRecord { name: "_acme-challenge.example".to_owned(), value: value.to_owned() };
        update(&parse_absolute_name("example").unwrap(), &record, DNSClass::IN, 60, &signer(), SENT)
    }

    /// Builds the server's response, signed at `now`.
    fn answer(request: &[u8], now: u64) -> Vec<u8> {
        let request = Message::from_vec(request).unwrap();
        let mut answer = Message::new(request.metadata.id, MessageType::Response, OpCode::Update);
        let mac = request.signature().unwrap().data.mac.clone();
        let context = TSigResponseContext::new(request.metadata.id, now, signer(), mac, None);
        answer.set_signature(context.sign(&answer.to_vec().unwrap()).unwrap());
        answer.to_vec().unwrap()
    }

    fn believed(answer: &[u8], mut verifier: TSigVerifier) -> bool {
        check(answer, &mut verifier).is_ok_and(|(_, checked)| checked.is_ok())
    }

    #[test]
    fn only_a_tsig_response_signed_over_the_request_is_accepted() {
        let (request, verifier) = signed_update("v").unwrap();
        let answered = answer(&request, SENT);
        assert!(believed(&answered, verifier));
        assert!(!believed(&answered, signed_update("v").unwrap().1), "another request's");
        let fresh = || {
            let (request, verifier) = signed_update("v").unwrap();
            (answer(&request, SENT), request, verifier)
        };
        let (_, request, verifier) = fresh();
        assert!(!believed(&request, verifier), "the request itself is no answer");
        let (_, request, verifier) = fresh();
        assert!(!believed(&answer(&request, SENT + 301), verifier), "too late");
        let (mut altered, _, verifier) = fresh();
        altered[3] ^= 5;
        assert!(!believed(&altered, verifier), "altered");
        let (answered, _, verifier) = fresh();
        let mut plain = Message::from_vec(&answered).unwrap();
        plain.take_signature();
        assert!(!believed(&plain.to_vec().unwrap(), verifier), "unsigned");
        let (answered, _, mut verifier) = fresh();
        for length in 0..answered.len() {
            let read = check(&answered[..length], &mut verifier);
            assert!(!read.is_ok_and(|(_, checked)| checked.is_ok()), "cut off at {length}");
        }
        assert!(believed(&answered, verifier));
    }

    #[test]
    fn txt_value_longer_than_255_bytes_is_rejected() {
        assert!(signed_update(&"v".repeat(255)).is_ok());
        assert!(signed_update(&"v".repeat(256)).is_err_and(|error| error.0.contains("too long")));
    }

    #[test]
    fn invalid_names_and_secrets_are_rejected_and_secrets_not_shown() {
        const GOOD: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";
        assert!(publisher("k", None, "not base64!").is_err());
        for bad in ["", ".", "a..b", "é.example", &"a".repeat(64), &"a.".repeat(128)] {
            assert!(publisher(bad, None, GOOD).is_err(), "{bad}");
            assert!(publisher("k", Some(bad), GOOD).is_err(), "{bad}");
        }
        let shown = format!("{:?}", publisher("k", Some("A.example."), GOOD).unwrap());
        assert!(
            shown.contains("example") && !shown.contains("48, 49, 50") && !shown.contains(GOOD),
            "{shown}"
        );
    }
}
