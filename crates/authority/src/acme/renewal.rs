//! Renewal information (RFC 9773): the renewal window of a certificate, and the certificate that an order replaces.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde_json::json;
use store::StoreError;
use x509::SerialNumber;
use x509::crl::Reason;

use super::identifier::Identifier;
use super::problem::{Kind, Problem};
use super::request::AccountRequest;
use super::{Server, respond};
use crate::issue::{IssuedRecord, IssuedRef};
use crate::tables;
use crate::tree::CaError;

/// Lifetime in seconds below which a certificate is renewed at half of its lifetime at the latest, because recovery from a failure
/// takes days.
const SHORT_SECONDS: i64 = 10 * 86_400;
/// Share of the lifetime after which to renew if the profile no longer exists.
const RENEW_AT: f64 = 2.0 / 3.0;
/// Length of the window as a share of the lifetime.
const WINDOW: f64 = 0.04;
/// Maximum share of the lifetime by which a window is moved to an earlier time.
const SPREAD: f64 = 0.06;
/// Maximum polling interval of clients in seconds (RFC 9773 section 4.3 has six hours in its example).
const RETRY_MAX: i64 = 6 * 3_600;
/// Minimum polling interval of clients in seconds.
const RETRY_MIN: i64 = 60;

impl Server {
    /// Returns the renewal window of a certificate.
    pub(crate) async fn renewal_info(&self, id: &str) -> Result<Response<Bytes>, Problem> {
        let unknown = || {
            Problem::malformed("no certificate with this identifier was issued by this server")
                .status(StatusCode::NOT_FOUND)
        };
        let record = self.find_issued(id).await?.ok_or_else(unknown)?;
        let (begin, end) = (record.not_before_us / 1_000_000, record.not_after_us / 1_000_000);
        let revoked = record.revocation.filter(|facts| facts.reason != Reason::RemoveFromCrl);
        let (start, stop) = match revoked {
            Some(facts) => {
                let at = facts.revoked_at_us / 1_000_000;
                (at - 3_600, at)
            }
            None => {
                let renew_at = match self.authority.profile(&record.profile).await {
                    Ok(profile) => profile.renew_at,
                    Err(_) => RENEW_AT,
                };
                let spread = u32::from_be_bytes([
                    record.sha256[0],
                    record.sha256[1],
                    record.sha256[2],
                    record.sha256[3],
                ]);
                window(begin, end, renew_at, spread)
            }
        };
        let retry = ((end - begin) / 20).clamp(RETRY_MIN, RETRY_MAX);
        let time = |seconds: i64| respond::time(seconds.saturating_mul(1_000_000));
        let body = json!({ "suggestedWindow": { "start": time(start), "end": time(stop) } });
        let response = respond::json(StatusCode::OK, &body)?;
        Ok(respond::with_header(response, header::RETRY_AFTER, &retry.to_string()))
    }

    /// Returns the certificate with an identifier as in RFC 9773 section 4.1: key identifier and serial number.
    async fn find_issued(&self, id: &str) -> Result<Option<IssuedRecord>, Problem> {
        let bad = || {
            Problem::malformed(
                "the certificate identifier must be the key identifier, a dot and the serial number, both in base64url (RFC 9773)",
            )
        };
        let (key, serial) = id.split_once('.').ok_or_else(bad)?;
        let key = URL_SAFE_NO_PAD.decode(key).map_err(|_| bad())?;
        let serial = SerialNumber::from_content(&URL_SAFE_NO_PAD.decode(serial).map_err(|_| bad())?);
        let cas = self.authority.cas().await.map_err(|error| match error {
            CaError::Store(error) => super::problem::read_failed(&error),
            _ => Problem::internal(),
        })?;
        for ca in cas.iter().filter(|ca| ca.key_identifier() == key) {
            let found: Result<_, StoreError> =
                self.authority.issued(&IssuedRef::Serial(ca.id, serial.clone())).await;
            if let Some(record) = found? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Checks that an order may replace a certificate (RFC 9773 section 5).
    pub(crate) async fn check_replaces(
        &self,
        id: &str,
        names: &[Identifier],
        signed: &AccountRequest,
    ) -> Result<(), Problem> {
        let record = self.find_issued(id).await?;
        let record = record
            .ok_or_else(|| Problem::malformed("replaces: this server did not issue such a certificate"))?;
        if record.requester != signed.account.actor() {
            return Err(Problem::unauthorized("replaces: the certificate was issued to another account"));
        }
        let shared = x509::Certificate::parse(&record.der).is_ok_and(|certificate| {
            certificate.subject_alt_names.iter().filter_map(Identifier::of).any(|name| names.contains(&name))
        });
        if !shared {
            return Err(Problem::malformed(
                "replaces: the certificate and this order have no name in common",
            ));
        }
        if tables::Acme::of(&self.store).replacement(id).await?.is_some() {
            let detail = "replaces: the certificate is already replaced";
            return Err(Problem::new(Kind::AlreadyReplaced, detail));
        }
        Ok(())
    }
}

/// Returns start and end of the renewal window in seconds. The center of the window is at `renew_at` of the lifetime, or earlier at
/// one half if the lifetime is short. The window is moved to an earlier time in proportion to `spread`, so that certificates issued
/// together are not renewed together.
fn window(begin: i64, end: i64, renew_at: f64, spread: u32) -> (i64, i64) {
    let life = (end - begin).max(1);
    let part = if life < SHORT_SECONDS { renew_at.min(0.5) } else { renew_at };
    let shift = SPREAD * f64::from(spread) / f64::from(u32::MAX);
    let at = |part: f64| begin + (life as f64 * part.clamp(0.0, 1.0)) as i64;
    let start = at(part - shift - WINDOW / 2.0).min(end - 1);
    (start, at(part - shift + WINDOW / 2.0).clamp(start + 1, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn renewal_window_scales_with_the_lifetime() {
        let share = |life: i64, at: i64| at as f64 / life as f64;
        for (life, expected) in
            [(90 * DAY, 2.0 / 3.0), (365 * DAY, 2.0 / 3.0), (6 * DAY, 0.5), (DAY / 4, 0.5)]
        {
            let (start, stop) = window(0, life, RENEW_AT, 0);
            assert!((share(life, start) - (expected - 0.02)).abs() < 0.001, "{life}");
            assert!((share(life, stop) - (expected + 0.02)).abs() < 0.001, "{life}");
            let (earliest, _) = window(0, life, RENEW_AT, u32::MAX);
            assert!((share(life, earliest) - (expected - 0.08)).abs() < 0.001, "{life}");
        }
        assert_eq!(window(0, DAY, 0.25, 0).0, DAY * 23 / 100);
    }

    proptest! {
        #[test]
        fn renewal_window_lies_within_the_lifetime(life in 2_i64..1_000_000_000, renew_at in 0.0_f64..1.0, spread: u32) {
            let (start, stop) = window(1_000, 1_000 + life, renew_at, spread);
            prop_assert!(1_000 <= start && start < stop && stop <= 1_000 + life, "{} {}", start, stop);
        }
    }
}
