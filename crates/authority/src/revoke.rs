//! Revocation of sets of certificates. It is idempotent, and CRLs and OCSP are updated immediately.

use std::sync::Arc;

use events::{CertificateRevoked, Event, RevokedByAuthority};
use futures_util::future::BoxFuture;
use serde_json::json;
use store::series::{Series, SeriesCounts, count_series};
use store::{AuditEvent, StoreError, Tx, audit, emit};
use uuid::Uuid;
use x509::crl::Reason;
use x509::{Fingerprint, SerialNumber, SpkiHash, UnixTime};

use crate::Authority;
use crate::figures::Counters;
use crate::issue::{IssuedRecord, IssuedRef};
use crate::tables;
use crate::tables::{IssuedFilter, MatchCounts, RevocationFields, RevocationTarget, RevokedRow, Source};

/// Maximum number of certificate identifiers in one revocation.
pub const IDS_MAX: usize = 10_000;

/// Maximum number of certificates for which a revocation writes one audit event and one outbox event per certificate. Above this
/// number, it writes one audit event and one outbox event for the whole revocation. The stored revocation of each certificate
/// contains the identifier of the whole revocation.
pub const REPORTED_EACH_MAX: u64 = 10_000;

/// Maximum seconds by which a revocation date may precede the current time. No certificate of this CA is older.
const BACKDATE_MAX_SECONDS: i64 = 10 * 366 * x509::DAY;

/// Selection of the certificates to revoke.
#[derive(Clone, Debug)]
pub enum Selection {
    /// One certificate, by its identifier.
    Id(Uuid),
    /// One certificate, by its fingerprint.
    Fingerprint(Fingerprint),
    /// One certificate, by its CA and serial number.
    Serial {
        /// Id of the CA that issued the certificate.
        ca: Uuid,
        /// Serial number of the certificate.
        serial: SerialNumber,
    },
    /// Several certificates, by identifier; at most [`IDS_MAX`].
    Ids(Vec<Uuid>),
    /// All certificates that match all conditions. A filter without a condition is rejected.
    Filter(RevocationFilter),
    /// All certificates with this public key.
    Key(SpkiHash),
}

/// Conditions for certificates to revoke. All of them must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RevocationFilter {
    /// Only certificates of this profile.
    pub profile: Option<String>,
    /// Only certificates of this CA.
    pub ca: Option<Uuid>,
    /// Only certificates with this name or a subdomain of it.
    pub name_suffix: Option<String>,
    /// Only certificates requested over this protocol.
    pub source: Option<Source>,
    /// Only certificates of this requester.
    pub requester: Option<String>,
    /// Only certificates issued at or after this time.
    pub issued_after: Option<UnixTime>,
    /// Only certificates issued before this time.
    pub issued_before: Option<UnixTime>,
}

/// Revocation date in the CRL, and date of the suspected compromise.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RevocationDates {
    /// Revocation date in the CRL; now when `None`, never in the future.
    pub revoked_at: Option<UnixTime>,
    /// Time since when the key is suspected to be compromised (RFC 5280 section 5.3.2).
    pub invalid_since: Option<UnixTime>,
}

/// Result of a revocation: the numbers of changed and unchanged certificates.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Revoked {
    /// Number of certificates whose state changed.
    pub count: u64,
    /// Number of certificates that already had the requested state.
    pub already: u64,
    /// Number of expired certificates, which no CRL lists.
    pub expired: u64,
    /// Identifier of this revocation in the audit log.
    pub action: Uuid,
}

/// Reason why no certificate was revoked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RevokeError {
    /// The certificate does not exist. The caller must check the identifier, serial number or fingerprint.
    #[error("unknown certificate: this server did not issue it")]
    Unknown,
    /// The filter has no condition. At least one is required, so that a caller cannot revoke every certificate by mistake.
    #[error(
        "the filter has no condition and would revoke all certificates; to revoke all certificates of a CA, name the CA"
    )]
    NoCondition,
    /// Too many identifiers. The caller must split them into several calls.
    #[error("{0} ids given; at most {IDS_MAX} are allowed per request; use a filter for more")]
    TooMany(usize),
    /// The revocation date or invalidity date is in the future, or more than ten years in the past. The caller must correct it.
    #[error("the date {0} is not valid: {1}")]
    Date(UnixTime, &'static str),
    /// The reason is not allowed. The caller must use another one.
    #[error("the reason {0} is not allowed: {1}")]
    Reason(Reason, &'static str),
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for RevokeError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// Revocation and expiry status of a certificate that this server issued.
#[derive(Clone, Debug, PartialEq)]
pub enum CertificateStatus {
    /// The certificate is neither revoked nor expired.
    Good,
    /// The certificate expired without being revoked.
    Expired,
    /// The certificate is revoked.
    Revoked {
        /// Revocation date in the CRL.
        at: UnixTime,
        /// Revocation reason (RFC 5280 section 5.3.1).
        reason: Reason,
        /// Time since when the key is suspected to be compromised.
        invalid_since: Option<UnixTime>,
    },
}

/// The result of the revocation transaction.
struct RevocationReport {
    matched: MatchCounts,
    changed: u64,
    /// The revoked certificates; empty if there are more than [`REPORTED_EACH_MAX`].
    rows: Vec<RevokedRow>,
}

impl Authority {
    /// Revokes the selected certificates in one transaction with the audit events, and makes the affected CRLs due. Revoked
    /// certificates are not changed, with two exceptions: a hold becomes a revocation, and keyCompromise replaces other reasons.
    /// [`Reason::RemoveFromCrl`] releases certificates from hold.
    ///
    /// # Errors
    /// [`RevokeError`]; [`RevokeError::Unknown`] only for a single certificate.
    #[crate::boxed]
    pub async fn revoke(
        &self,
        selection: Selection,
        reason: Reason,
        at: Option<UnixTime>,
        actor: &str,
    ) -> Result<Revoked, RevokeError> {
        let dates = RevocationDates { revoked_at: at, invalid_since: None };
        self.revoke_with_invalidity_date(selection, reason, dates, actor).await
    }

    /// Revokes like [`Authority::revoke`], with an invalidity date.
    ///
    /// # Errors
    /// The errors of [`Authority::revoke`].
    #[crate::boxed]
    pub async fn revoke_with_invalidity_date(
        &self,
        selection: Selection,
        reason: Reason,
        dates: RevocationDates,
        actor: &str,
    ) -> Result<Revoked, RevokeError> {
        let mark = self.mark(reason, dates, actor)?;
        if reason == Reason::CaCompromise {
            self.require_ca_certificates(&selection).await?;
        }
        let single =
            matches!(selection, Selection::Id(_) | Selection::Fingerprint(_) | Selection::Serial { .. });
        let what = selection_details(&selection);
        let target = target(selection)?;
        let action = mark.action;
        let report = self.store().write("revoke", move |tx| revoke_and_emit(tx, target, mark, what)).await?;
        if single && report.matched.all == 0 {
            return Err(RevokeError::Unknown);
        }
        if report.changed > 0 {
            self.responders().forget(&report.rows, report.changed);
            self.client_statuses().forget();
            self.crls().wake();
            Counters::add(&self.counters().revoked, report.changed);
        }
        let count = |n: i64| u64::try_from(n).unwrap_or_default();
        Ok(Revoked {
            count: report.changed,
            already: count(report.matched.all - report.matched.expired).saturating_sub(report.changed),
            expired: count(report.matched.expired),
            action,
        })
    }

    /// Blocks a public key. No more certificates are issued for the key, and all its certificates are revoked with reason
    /// keyCompromise.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn block_key(&self, spki: SpkiHash, actor: &str) -> Result<Revoked, RevokeError> {
        let (key, now_us, by) = (*spki.as_bytes(), self.clock().now_us(), actor.to_owned());
        let blocked = self.store().write("key_block", move |tx| {
            Box::pin(async move {
                if tables::block_spki(tx, key, now_us, &by).await? {
                    let resource = format!("key/{spki}");
                    let event = AuditEvent {
                        at_us: now_us,
                        actor: by,
                        action: "key.block",
                        resource,
                        details: json!({}),
                    };
                    audit(tx, vec![event]).await?;
                }
                Ok(())
            })
        });
        blocked.await?;
        // Revoke only after the block is committed: by now, every concurrent issuance with this key has stored its certificate.
        self.revoke(Selection::Key(spki), Reason::KeyCompromise, None, actor).await
    }

    /// Returns whether a public key is blocked.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn is_blocked(&self, spki: &SpkiHash) -> Result<bool, StoreError> {
        tables::Revocations::of(self.store()).is_spki_blocked(spki.as_bytes()).await
    }

    /// Returns the status of an issued certificate; `None` if this server did not issue it.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn status(&self, which: &IssuedRef) -> Result<Option<CertificateStatus>, StoreError> {
        let now_us = self.clock().now_us();
        Ok(self.issued(which).await?.map(|record| status_of(&record, now_us)))
    }

    /// Checks that the selected certificates are CA certificates. The reason cACompromise is not valid for a leaf.
    async fn require_ca_certificates(&self, selection: &Selection) -> Result<(), RevokeError> {
        let which = match selection {
            Selection::Id(id) => IssuedRef::Id(*id),
            Selection::Fingerprint(fingerprint) => IssuedRef::Fingerprint(*fingerprint),
            Selection::Serial { ca, serial } => IssuedRef::Serial(*ca, serial.clone()),
            Selection::Ids(_) | Selection::Filter(_) | Selection::Key(_) => {
                return Err(RevokeError::Reason(Reason::CaCompromise, "select a single CA certificate"));
            }
        };
        let record = self.issued(&which).await?.ok_or(RevokeError::Unknown)?;
        let is_ca = x509::Certificate::parse(&record.der).is_ok_and(|certificate| certificate.is_ca());
        let leaf = RevokeError::Reason(Reason::CaCompromise, "this reason applies to CA certificates only");
        if is_ca { Ok(()) } else { Err(leaf) }
    }

    fn mark(
        &self,
        reason: Reason,
        dates: RevocationDates,
        actor: &str,
    ) -> Result<RevocationFields, RevokeError> {
        let now_us = self.clock().now_us();
        let now = UnixTime(now_us.div_euclid(1_000_000));
        for date in [dates.revoked_at, dates.invalid_since].into_iter().flatten() {
            if date > now {
                return Err(RevokeError::Date(date, "it is in the future"));
            }
            if date < now.plus(-BACKDATE_MAX_SECONDS) {
                return Err(RevokeError::Date(date, "it is more than ten years in the past"));
            }
        }
        match reason {
            Reason::AaCompromise => {
                return Err(RevokeError::Reason(reason, "this reason applies to attribute authorities only"));
            }
            _ if dates.invalid_since.is_some() && reason != Reason::KeyCompromise => {
                return Err(RevokeError::Reason(
                    reason,
                    "an invalidity date is allowed only with keyCompromise",
                ));
            }
            _ => {}
        }
        let us = |time: UnixTime| time.0.saturating_mul(1_000_000);
        Ok(RevocationFields {
            action: Uuid::now_v7(),
            reason,
            revoked_at_us: dates.revoked_at.map_or(now_us, us),
            invalidity_at_us: dates.invalid_since.map(us),
            now_us,
            actor: actor.to_owned(),
        })
    }
}

/// Returns the status of a certificate record at the time `now_us`.
#[must_use]
pub fn status_of(record: &IssuedRecord, now_us: i64) -> CertificateStatus {
    let seconds = |us: i64| UnixTime(us.div_euclid(1_000_000));
    match record.revocation {
        Some(facts) if facts.reason != Reason::RemoveFromCrl => CertificateStatus::Revoked {
            at: seconds(facts.revoked_at_us),
            reason: facts.reason,
            invalid_since: facts.invalidity_at_us.map(seconds),
        },
        _ if record.not_after_us < now_us => CertificateStatus::Expired,
        _ => CertificateStatus::Good,
    }
}

enum Target {
    Set(RevocationTarget),
    Ids(Vec<Uuid>),
}

fn target(selection: Selection) -> Result<Target, RevokeError> {
    Ok(Target::Set(match selection {
        Selection::Id(id) => RevocationTarget::Id(id),
        Selection::Fingerprint(fingerprint) => RevocationTarget::Sha256(*fingerprint.as_bytes()),
        Selection::Serial { ca, serial } => RevocationTarget::Serial(ca, serial.content().to_vec()),
        Selection::Key(spki) => RevocationTarget::Key(*spki.as_bytes()),
        Selection::Ids(ids) if ids.len() > IDS_MAX => return Err(RevokeError::TooMany(ids.len())),
        Selection::Ids(mut ids) => {
            ids.sort_unstable();
            ids.dedup();
            return Ok(Target::Ids(ids));
        }
        Selection::Filter(filter) if filter == RevocationFilter::default() => {
            return Err(RevokeError::NoCondition);
        }
        Selection::Filter(filter) => RevocationTarget::Filter(IssuedFilter {
            ca: filter.ca,
            profile: filter.profile,
            requester: filter.requester,
            source: filter.source,
            name_suffix: filter.name_suffix,
            issued_from_us: filter.issued_after.map(|time| time.0.saturating_mul(1_000_000)),
            issued_before_us: filter.issued_before.map(|time| time.0.saturating_mul(1_000_000)),
            ..IssuedFilter::default()
        }),
    }))
}

/// Describes the selection for the audit log.
fn selection_details(selection: &Selection) -> serde_json::Value {
    match selection {
        Selection::Id(id) => json!({ "id": id }),
        Selection::Fingerprint(fingerprint) => json!({ "sha256": fingerprint }),
        Selection::Serial { ca, serial } => json!({ "ca": ca, "serial": serial }),
        Selection::Ids(ids) => json!({ "ids": ids.len() }),
        Selection::Key(spki) => json!({ "key": spki }),
        Selection::Filter(filter) => json!({
            "profile": filter.profile,
            "ca": filter.ca,
            "name_suffix": filter.name_suffix,
            "source": filter.source,
            "requester": filter.requester,
            "issued_after": filter.issued_after,
            "issued_before": filter.issued_before,
        }),
    }
}

fn revoke_and_emit(
    tx: &mut Tx,
    target: Target,
    mark: RevocationFields,
    what: serde_json::Value,
) -> BoxFuture<'_, Result<RevocationReport, StoreError>> {
    Box::pin(async move {
        let (matched, changed) = match &target {
            Target::Set(target) => tables::revoke(tx, target, &mark).await?,
            Target::Ids(ids) => tables::revoke_ids(tx, ids, &mark).await?,
        };
        if changed == 0 {
            return Ok(RevocationReport { matched, changed, rows: Vec::new() });
        }
        let rows = match changed {
            0..=REPORTED_EACH_MAX => {
                tables::revoked_by_request(tx, mark.action, REPORTED_EACH_MAX as i64).await?
            }
            _ => Vec::new(),
        };
        let details =
            json!({ "action": mark.action, "reason": mark.reason, "selected_by": what, "count": changed });
        let resources: Vec<String> = match rows.is_empty() {
            true => vec![format!("revocation/{}", mark.action)],
            false => rows.iter().map(|row| format!("certificate/{}", row.id)).collect(),
        };
        let event = |resource: &String| AuditEvent {
            at_us: mark.now_us,
            actor: mark.actor.clone(),
            action: "certificate.revoke",
            resource: resource.clone(),
            details: details.clone(),
        };
        let mut counts = SeriesCounts::default();
        counts.add(Series::Revoked, None, changed);
        count_series(tx, &counts, mark.now_us).await?;
        audit(tx, resources.iter().map(event).collect()).await?;
        let body =
            RevokedByAuthority { action: mark.action, reason: mark.reason.to_string(), count: changed };
        let event = match rows.is_empty() {
            true => Event::CertificatesRevoked(body),
            false => Event::CertificateRevoked(CertificateRevoked::ByAuthority(body)),
        };
        let report = |subject: String| store::new_event(mark.now_us, subject, &event);
        emit(tx, resources.into_iter().map(report).collect()).await?;
        Ok(RevocationReport { matched, changed, rows })
    })
}
