//! A cached CRL with verified signature and packed entries, and the status of a certificate according to the CRL.
//!
//! Implements RFC 5280 section 6.3.3, without indirect CRLs.

use std::sync::Arc;

use x509::crl::{Crl, ParseError, Reason, Scope};
use x509::{Certificate, DistinguishedName, KeyUsage, SerialNumber, SignatureError, UnixTime};

use super::serials::{Entry, Serials};
use super::url::URL_MAX;
use super::verdict::Cause;

/// Seconds that an issuer's clock may be ahead of the local one.
pub(super) const SKEW: i64 = 300;
/// Maximum URLs of delta CRLs stored for a CRL. Issuers list one.
const FRESHEST_MAX: usize = 4;
/// Approximate bytes of a CRL in addition to its entries and texts.
const LIST_OVERHEAD: usize = 1_024;

/// A CRL whose signature was verified with the issuer's key.
#[derive(Debug)]
pub(super) struct List {
    issuer: DistinguishedName,
    this_update: UnixTime,
    next_update: Option<UnixTime>,
    number: Option<SerialNumber>,
    base: Option<SerialNumber>,
    points: Vec<String>,
    unnamed_point: bool,
    scope: Scope,
    indirect: bool,
    some_reasons: bool,
    unknown_critical: Option<String>,
    freshest: Vec<Arc<str>>,
    serials: Serials,
    /// Value of `ETag`, for conditional requests.
    pub(super) etag: Option<String>,
    /// Value of `Last-Modified`, for conditional requests.
    pub(super) last_modified: Option<String>,
}

/// Status of a certificate according to a CRL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ListStatus {
    Good { until: UnixTime },
    Revoked(Entry),
}

impl List {
    /// Parses a CRL and verifies that the key of `issuer` signed it. Takes about 200 ns per entry.
    pub(super) fn read(der: &[u8], issuer: &Certificate) -> Result<Self, Cause> {
        let crl = Crl::parse(der).map_err(|error| match error {
            ParseError::TooLong(_) => Cause::TooLarge { limit: Crl::DER_MAX },
            ParseError::NotCrl(_) => Cause::Malformed(error.to_string()),
        })?;
        crl.signed_by(&issuer.public_key).map_err(|error| match error {
            SignatureError::Invalid => Cause::BadSignature,
            SignatureError::Unsupported(why) => Cause::Unverifiable(why),
        })?;
        let serials = Serials::pack(crl.entries())
            .map_err(|long| Cause::Malformed(format!("a serial number of {} bytes", long.0)))?;
        Ok(Self {
            issuer: crl.issuer,
            this_update: crl.this_update,
            next_update: crl.next_update,
            number: crl.number,
            base: crl.base,
            points: crl.distribution_points,
            unnamed_point: crl.unnamed_distribution_point,
            scope: crl.scope,
            indirect: crl.indirect,
            some_reasons: crl.some_reasons,
            unknown_critical: crl.unknown_critical.into_iter().next(),
            freshest: crl
                .freshest
                .into_iter()
                .filter(|url| url.len() <= URL_MAX)
                .take(FRESHEST_MAX)
                .map(Arc::from)
                .collect(),
            serials,
            etag: None,
            last_modified: None,
        })
    }

    /// Returns the approximate memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let names = self.issuer.der.len() + 2 * self.issuer.text.len();
        let points: usize = self.points.iter().map(String::len).sum();
        let freshest: usize = self.freshest.iter().map(|url| url.len()).sum();
        let numbers = [&self.number, &self.base].into_iter().flatten().map(|number| number.content().len());
        self.serials.memory_bytes() + names + points + freshest + numbers.sum::<usize>() + LIST_OVERHEAD
    }

    pub(super) fn len(&self) -> usize {
        self.serials.len()
    }

    /// Returns the URLs of the delta CRLs.
    pub(super) fn freshest(&self) -> &[Arc<str>] {
        &self.freshest
    }

    /// Returns the creation time (thisUpdate).
    pub(super) fn this_update(&self) -> UnixTime {
        self.this_update
    }

    /// Returns the time of the next CRL (nextUpdate).
    pub(super) fn next_update(&self) -> Option<UnixTime> {
        self.next_update
    }

    /// Returns whether the CRL is older than `other`, which indicates a replay.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.this_update < other.this_update
    }

    /// Checks that the CRL is valid at `now`, and returns the end of its validity.
    pub(super) fn check_validity(&self, now: UnixTime) -> Result<UnixTime, Cause> {
        if self.this_update > now.plus(SKEW) {
            return Err(Cause::FromTheFuture { this_update: self.this_update });
        }
        match self.next_update {
            Some(due) if now <= due => Ok(due),
            next_update => Err(Cause::Stale { next_update }),
        }
    }

    /// Returns the status of `certificate` by `issuer` according to this CRL and a matching `delta`, if any.
    ///
    /// An outdated CRL is still valid for permanent revocations.
    pub(super) fn certificate_status(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        delta: Option<&Self>,
        now: UnixTime,
    ) -> Result<ListStatus, Cause> {
        self.covers(certificate, issuer)?;
        let check_validity = self.check_validity(now);
        let delta = delta.filter(|delta| delta.is_delta_for(self, now));
        let changed = delta.and_then(|delta| delta.serials.get(&certificate.serial));
        let entry = match changed {
            Some(Entry { reason: Some(Reason::RemoveFromCrl), .. }) => None,
            Some(entry) => Some(entry),
            None => self.serials.get(&certificate.serial),
        };
        match entry {
            // removeFromCRL is invalid in a complete CRL (RFC 5280 section 5.3.1) and does not mean revoked.
            Some(Entry { reason: Some(Reason::RemoveFromCrl), .. }) | None => {}
            Some(entry) => {
                if entry.reason == Some(Reason::CertificateHold) {
                    check_validity?;
                }
                return Ok(ListStatus::Revoked(entry));
            }
        }
        let until = check_validity?;
        if self.some_reasons {
            return Err(Cause::SomeReasons);
        }
        let until = delta.and_then(Self::next_update).map_or(until, |due| until.min(due));
        Ok(ListStatus::Good { until })
    }

    /// Checks that the CRL covers this certificate (RFC 5280 section 6.3.3 (b) and (f)).
    fn covers(&self, certificate: &Certificate, issuer: &Certificate) -> Result<(), Cause> {
        let may_sign = issuer.key_usage.is_none_or(|usage| usage.allows(KeyUsage::CRL_SIGN));
        let checks = [
            (may_sign, Cause::MayNotSign),
            (self.issuer.matches(&certificate.issuer), Cause::WrongIssuer),
            (self.base.is_none(), Cause::WrongKind),
            (!self.indirect, Cause::Indirect),
            (self.covers_distribution_point(certificate), Cause::WrongDistributionPoint),
            (is_in(self.scope, certificate), Cause::WrongScope),
        ];
        if let Some((_, cause)) = checks.into_iter().find(|(holds, _)| !holds) {
            return Err(cause);
        }
        match &self.unknown_critical {
            Some(extension) => Err(Cause::UnknownExtension(extension.clone())),
            None => Ok(()),
        }
    }

    /// Returns whether the certificate names the CRL's distribution point (RFC 5280 section 6.3.3 (b)(2)(i)).
    fn covers_distribution_point(&self, certificate: &Certificate) -> bool {
        if self.points.is_empty() {
            return !self.unnamed_point;
        }
        self.points.iter().any(|point| certificate.crl_urls.iter().any(|url| is_same_url(url, point)))
    }

    /// Returns whether this delta CRL belongs to `complete` (RFC 5280 sections 5.2.4 and 6.3.3 (c)) and is newer.
    fn is_delta_for(&self, complete: &Self, now: UnixTime) -> bool {
        let numbers = match (&self.base, &self.number, &complete.number) {
            (Some(base), Some(number), Some(complete)) => {
                !is_less(complete, base) && is_less(complete, number)
            }
            _ => false,
        };
        numbers
            && self.check_validity(now).is_ok()
            && self.unknown_critical.is_none()
            && self.issuer.matches(&complete.issuer)
            && (&self.points, self.scope, self.unnamed_point, self.indirect, self.some_reasons)
                == (
                    &complete.points,
                    complete.scope,
                    complete.unnamed_point,
                    complete.indirect,
                    complete.some_reasons,
                )
    }
}

fn is_in(scope: Scope, certificate: &Certificate) -> bool {
    match scope {
        Scope::All => true,
        Scope::EndEntities => !certificate.is_ca(),
        Scope::Authorities => certificate.is_ca(),
        Scope::Attributes => false,
    }
}

/// Compares CRL numbers. They are positive (RFC 5280 section 5.2.3), so the longer one is larger.
fn is_less(left: &SerialNumber, right: &SerialNumber) -> bool {
    fn magnitude(number: &SerialNumber) -> &[u8] {
        match number.shortest() {
            [0, rest @ ..] => rest,
            all => all,
        }
    }
    let (left, right) = (magnitude(left), magnitude(right));
    (left.len(), left) < (right.len(), right)
}

/// Compares URLs: scheme and host without case, the rest byte by byte (RFC 5280 section 7.4).
fn is_same_url(left: &str, right: &str) -> bool {
    fn parts(url: &str) -> (&str, &str) {
        let host = url.find("://").map_or(0, |at| at + 3);
        let path = url[host..].find('/').map_or(url.len(), |at| host + at);
        url.split_at(path)
    }
    let ((left_host, left_path), (right_host, right_path)) = (parts(left), parts(right));
    left_host.eq_ignore_ascii_case(right_host) && left_path == right_path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crl_url_comparison_ignores_case_of_scheme_and_host_only() {
        for (left, right, same) in [
            ("http://c.example/a.crl", "http://c.example/a.crl", true),
            ("HTTP://C.example/a.crl", "http://c.EXAMPLE/a.crl", true),
            ("http://c.example/A.crl", "http://c.example/a.crl", false),
            ("http://c.example", "http://c.example/", false),
            ("ldap:", "ldap:", true),
            ("", "http://c.example/", false),
        ] {
            assert_eq!(is_same_url(left, right), same, "{left} {right}");
        }
    }

    #[test]
    fn crl_numbers_are_compared_numerically() {
        let number = |memory_bytes: &[u8]| SerialNumber::from_content(memory_bytes);
        for (left, right, less) in [
            (&[1][..], &[2][..], true),
            (&[0xff, 1][..], &[0xff, 2][..], true),
            (&[0x7f], &[0, 0x80], true),
            (&[0, 0xff], &[1, 0], true),
            (&[2], &[2], false),
            (&[3], &[2], false),
            (&[1, 0], &[0, 0xff], false),
        ] {
            assert_eq!(is_less(&number(left), &number(right)), less, "{left:?} {right:?}");
        }
    }
}
