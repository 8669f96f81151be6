//! Transaction signatures (RFC 8945) over DNS messages as octets.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keys::Secret;

use super::config::TsigAlgorithm;
use super::publisher::PublishError;
use crate::error::IssuerError;

/// Seconds the clocks may differ (section 10).
const FUDGE: u16 = 300;
const TYPE_TSIG: u16 = 250;
const CLASS_ANY: u16 = 255;
/// Octets of a message's header.
const HEADER: usize = 12;

/// A key shared with a name server.
pub(super) struct Key {
    name: Vec<u8>,
    algorithm: Vec<u8>,
    mac: hmac::Key,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("tsig::Key(…)")
    }
}

/// A message as sent, and its MAC, which the answer's covers.
pub(super) struct Signed {
    pub(super) message: Vec<u8>,
    pub(super) mac: Vec<u8>,
}

impl Key {
    pub(super) fn new(name: &str, algorithm: TsigAlgorithm, secret: &Secret) -> Result<Self, IssuerError> {
        let bad = |what: &str| IssuerError::misconfigured(format!("dns01.publisher.{what}"));
        let octets = STANDARD.decode(secret.expose().trim()).map_err(|_| bad("tsig_secret is not base64"))?;
        let (words, kind) = match algorithm {
            TsigAlgorithm::HmacSha256 => ("hmac-sha256", hmac::HMAC_SHA256),
            TsigAlgorithm::HmacSha512 => ("hmac-sha512", hmac::HMAC_SHA512),
        };
        Ok(Self {
            name: wire_name(name).ok_or_else(|| bad("tsig_name is no domain name"))?,
            algorithm: wire_name(words).unwrap_or_default(),
            mac: hmac::Key::new(kind, &octets),
        })
    }

    /// Signs a message of the time `now`, seconds.
    pub(super) fn sign(&self, message: &[u8], now: i64) -> Signed {
        let time = time48(now);
        let covered = [message, &self.variables(time, FUDGE, 0, &[])].concat();
        let mac = hmac::sign(&self.mac, &covered).as_ref().to_vec();
        let mut data = self.algorithm.clone();
        data.extend_from_slice(&time);
        data.extend_from_slice(&FUDGE.to_be_bytes());
        data.extend_from_slice(&(mac.len() as u16).to_be_bytes());
        data.extend_from_slice(&mac);
        data.extend_from_slice(&message[..2]);
        data.extend_from_slice(&[0; 4]);
        let mut signed = message.to_vec();
        signed.extend_from_slice(&self.name);
        signed.extend_from_slice(&TYPE_TSIG.to_be_bytes());
        signed.extend_from_slice(&CLASS_ANY.to_be_bytes());
        signed.extend_from_slice(&[0; 4]);
        signed.extend_from_slice(&(data.len() as u16).to_be_bytes());
        signed.extend_from_slice(&data);
        let additional = u16::from_be_bytes([message[10], message[11]]) + 1;
        signed[10..12].copy_from_slice(&additional.to_be_bytes());
        Signed { message: signed, mac }
    }

    /// Checks that an answer is the server's, to the request with this MAC (section 5.3).
    pub(super) fn verify(&self, answer: &[u8], request_mac: &[u8], now: i64) -> Result<(), PublishError> {
        let unreadable = || PublishError("an answer without a readable signature".to_owned());
        let record = last_additional(answer).ok_or_else(unreadable)?;
        let signature = Signature::read(record.data).ok_or_else(unreadable)?;
        match signature.error {
            0 => {}
            16 => return Err(PublishError("the server says BADSIG: the TSIG secret is another".to_owned())),
            17 => {
                return Err(PublishError("the server says BADKEY: it does not know the TSIG key".to_owned()));
            }
            18 => return Err(PublishError("the server says BADTIME: the clocks differ".to_owned())),
            other => {
                return Err(PublishError(format!("the server refuses the signature: TSIG error {other}")));
            }
        }
        let mut plain = answer[..record.start].to_vec();
        let additional = u16::from_be_bytes([plain[10], plain[11]]).saturating_sub(1);
        plain[10..12].copy_from_slice(&additional.to_be_bytes());
        plain[..2].copy_from_slice(&signature.original_id);
        let mut covered = (request_mac.len() as u16).to_be_bytes().to_vec();
        covered.extend_from_slice(request_mac);
        covered.extend_from_slice(&plain);
        covered.extend_from_slice(&self.variables(signature.time, signature.fudge, 0, signature.other));
        hmac::verify(&self.mac, &covered, signature.mac)
            .map_err(|_| PublishError("the answer's signature is not the server's".to_owned()))?;
        let signed_at = signature.time.iter().fold(0_i64, |time, octet| time << 8 | i64::from(*octet));
        if (now - signed_at).abs() > i64::from(signature.fudge) {
            return Err(PublishError("the answer was signed at another time; compare the clocks".to_owned()));
        }
        Ok(())
    }

    /// Section 4.3.3.
    fn variables(&self, time: [u8; 6], fudge: u16, error: u16, other: &[u8]) -> Vec<u8> {
        let mut out = self.name.clone();
        out.extend_from_slice(&CLASS_ANY.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.algorithm);
        out.extend_from_slice(&time);
        out.extend_from_slice(&fudge.to_be_bytes());
        out.extend_from_slice(&error.to_be_bytes());
        out.extend_from_slice(&(other.len() as u16).to_be_bytes());
        out.extend_from_slice(other);
        out
    }
}

/// The data of a TSIG record (section 4.2).
struct Signature<'a> {
    time: [u8; 6],
    fudge: u16,
    mac: &'a [u8],
    original_id: [u8; 2],
    error: u16,
    other: &'a [u8],
}

impl<'a> Signature<'a> {
    fn read(data: &'a [u8]) -> Option<Self> {
        let rest = &data[skip_name(data, 0)?..];
        let (time, rest) = rest.split_first_chunk::<6>()?;
        let (fudge, rest) = rest.split_first_chunk::<2>()?;
        let (mac, rest) = counted(rest)?;
        let (original_id, rest) = rest.split_first_chunk::<2>()?;
        let (error, rest) = rest.split_first_chunk::<2>()?;
        let (other, _) = counted(rest)?;
        Some(Self {
            time: *time,
            fudge: u16::from_be_bytes(*fudge),
            mac,
            original_id: *original_id,
            error: u16::from_be_bytes(*error),
            other,
        })
    }
}

/// A field with its length before it, and what follows.
fn counted(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = octets.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

struct Found<'a> {
    /// Where its owner's name begins.
    start: usize,
    data: &'a [u8],
}

/// The last record of a message, if it is a TSIG, which must be the last (section 5.1).
fn last_additional(message: &[u8]) -> Option<Found<'_>> {
    let count = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    let (questions, records) = (count(4)?, [count(6)?, count(8)?, count(10)?]);
    let mut at = HEADER;
    for _ in 0..questions {
        at = skip_name(message, at)? + 4;
    }
    let mut last = None;
    for _ in 0..records.iter().map(|count| u32::from(*count)).sum() {
        let start = at;
        at = skip_name(message, at)?;
        let head = message.get(at..at + 10)?;
        let length = usize::from(u16::from_be_bytes([head[8], head[9]]));
        let data = message.get(at + 10..at + 10 + length)?;
        at += 10 + length;
        last = Some((u16::from_be_bytes([head[0], head[1]]), Found { start, data }));
    }
    last.filter(|(kind, _)| *kind == TYPE_TSIG && at == message.len()).map(|(_, found)| found)
}

/// Where a name that begins at `at` ends.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length if length & 0xc0 == 0 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

/// A domain name on the wire, lower case; `None` when it is none.
pub(super) fn wire_name(text: &str) -> Option<Vec<u8>> {
    let mut wire = Vec::with_capacity(text.len() + 2);
    for label in text.trim_end_matches('.').split('.') {
        if label.is_empty() || label.len() > 63 || !label.is_ascii() {
            return None;
        }
        wire.push(label.len() as u8);
        wire.extend(label.bytes().map(|octet| octet.to_ascii_lowercase()));
    }
    wire.push(0);
    (wire.len() <= 255).then_some(wire)
}

fn time48(seconds: i64) -> [u8; 6] {
    let octets = seconds.to_be_bytes();
    [octets[2], octets[3], octets[4], octets[5], octets[6], octets[7]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("key.example.", TsigAlgorithm::HmacSha256, &Secret::new("MDEyMzQ1Njc4OWFiY2RlZg==")).unwrap()
    }

    #[test]
    fn names_on_the_wire() {
        assert_eq!(wire_name("A.example.").unwrap(), b"\x01a\x07example\x00");
        for bad in ["", "a..b", "é.example", &"a".repeat(64), &"a.".repeat(128)] {
            assert_eq!(wire_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_answer_signed_over_the_request_is_believed_and_no_other() {
        let key = key();
        let request = key.sign(&[7, 7, 0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1_000);
        assert!(
            key.verify(&request.message, &request.mac, 1_000).is_err(),
            "the request itself is no answer"
        );
        let plain = [7, 7, 0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // The server's side by the same rules: the request's MAC comes first.
        let time = time48(1_000);
        let mut covered = (request.mac.len() as u16).to_be_bytes().to_vec();
        covered.extend_from_slice(&request.mac);
        covered.extend_from_slice(&plain);
        covered.extend_from_slice(&key.variables(time, FUDGE, 0, &[]));
        let mac = hmac::sign(&key.mac, &covered);
        let template = key.sign(&plain, 1_000);
        let at = template.message.windows(32).position(|part| part == template.mac).unwrap();
        let mut answer = template.message;
        answer[at..at + 32].copy_from_slice(mac.as_ref());
        assert_eq!(key.verify(&answer, &request.mac, 1_000), Ok(()));
        assert!(key.verify(&answer, &request.mac, 1_301).is_err(), "too late");
        assert!(key.verify(&answer, &[0; 32], 1_000).is_err(), "another request's");
        let mut altered = answer.clone();
        altered[3] ^= 5;
        assert!(key.verify(&altered, &request.mac, 1_000).is_err(), "altered");
        assert!(key.verify(&plain, &request.mac, 1_000).is_err(), "unsigned");
        for length in 0..answer.len() {
            assert!(key.verify(&answer[..length], &request.mac, 1_000).is_err(), "cut off at {length}");
        }
    }

    #[test]
    fn a_secret_is_base64_and_never_shown() {
        assert!(Key::new("k", TsigAlgorithm::HmacSha512, &Secret::new("not base64!")).is_err());
        assert_eq!(format!("{:?}", key()), "tsig::Key(…)");
    }
}
