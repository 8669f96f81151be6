//! Stores and judges issuances in the caller's transaction, together with the cursor or log position and the events about them.

use std::collections::BTreeSet;
use std::time::Duration;

use store::{StoreError, Tx};
use uuid::Uuid;
use x509::UnixTime;

use super::DomainSet;
use super::follow::MatchedEntry;
use super::issuance::{
    Issuance, IssuanceId, IssuerRule, KnownAs, KnownCertificate, LATE_RENEWAL, Verdict, judge,
};
use crate::tables::{
    CtIssuanceRow, CtVerdict, NewCtIssuance, ct_expected, ct_known, judge_ct_issuances, record_ct_issuances,
};

/// Time for which an issuance waits for its verdict. A precertificate is logged before the issuer responds, so renewals of this
/// installation appear in logs before they are in the database. Deployment and the next scan are later still.
pub const GRACE: Duration = Duration::from_secs(900);

const SECOND_US: i64 = 1_000_000;

/// An issuance and the source that reported it.
#[derive(Clone, Debug)]
pub struct ReportedIssuance {
    /// Data of the issuance, as the source reported it.
    pub issuance: Issuance,
    /// The watched domains that the certificate covers.
    pub domains: Vec<String>,
    /// Name of the log or search service.
    pub source: String,
    /// Time of logging if the source reports it, milliseconds since 1970-01-01 UTC.
    pub logged_at_ms: Option<u64>,
}

impl ReportedIssuance {
    /// Creates the report of a log entry that matches a watched domain.
    #[must_use]
    pub fn from_log_match(found: MatchedEntry, domains: &DomainSet, log: &str) -> Self {
        let named = found.domains.iter().filter_map(|id| domains.domain(*id)).map(str::to_owned);
        Self {
            domains: named.collect(),
            issuance: found.issuance,
            source: log.to_owned(),
            logged_at_ms: Some(found.timestamp_ms),
        }
    }

    /// Converts a result of a search for `domain`. `domains` contains all watched domains: a certificate may cover several.
    #[must_use]
    pub fn from_search_result(issuance: Issuance, domain: &str, domains: &DomainSet, service: &str) -> Self {
        let mut named: BTreeSet<String> = issuance
            .matches(domains)
            .into_iter()
            .filter_map(|id| domains.domain(id))
            .map(str::to_owned)
            .collect();
        named.insert(domain.to_owned());
        Self {
            domains: named.into_iter().collect(),
            issuance,
            source: service.to_owned(),
            logged_at_ms: None,
        }
    }
}

/// Stores issuances; returns the ids of new ones. They are pending until [`judge_issuances`] judges them.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn record(tx: &mut Tx, found: Vec<ReportedIssuance>, now_us: i64) -> Result<Vec<Uuid>, StoreError> {
    let rows = found.into_iter().map(|one| row_of(one, now_us)).collect();
    record_ct_issuances(tx, rows).await
}

/// Sets a verdict without judging; returns the issuances whose verdict changed.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn set_verdict(
    tx: &mut Tx,
    issuances: &[Uuid],
    verdict: &Verdict,
) -> Result<Vec<Uuid>, StoreError> {
    let reason = reason_of(verdict);
    let stored = to_stored_verdict(verdict);
    judge_ct_issuances(tx, issuances.iter().map(|id| (*id, stored, reason.clone())).collect()).await
}

fn to_stored_verdict(verdict: &Verdict) -> CtVerdict {
    match verdict {
        Verdict::Unasked(_) => CtVerdict::Unasked,
        Verdict::Acknowledged(_) => CtVerdict::Acknowledged,
        Verdict::Known(_)
        | Verdict::Renewal { .. }
        | Verdict::AllowedIssuer
        | Verdict::NotWatched
        | Verdict::Baseline
        | Verdict::Accepted(_) => CtVerdict::Expected,
    }
}

/// Serializes the verdict; serialization cannot fail.
fn reason_of(verdict: &Verdict) -> String {
    serde_json::to_string(verdict).unwrap_or_default()
}

fn row_of(found: ReportedIssuance, now_us: i64) -> NewCtIssuance {
    let ReportedIssuance { issuance, domains, source, logged_at_ms } = found;
    let serial = issuance.serial.as_ref().filter(|_| issuance.readable).map(ToString::to_string);
    NewCtIssuance {
        id: Uuid::now_v7(),
        issuer_serial: issuance.id.issuer_serial,
        tbs: issuance.id.tbs,
        issuer: issuance.issuer,
        serial: serial.unwrap_or_default(),
        names: issuance.names,
        not_before_us: issuance.not_before.0.saturating_mul(SECOND_US),
        not_after_us: issuance.not_after.0.saturating_mul(SECOND_US),
        spki_sha256: issuance.spki_sha256,
        sha256: issuance.certificate_sha256,
        source,
        logged_at_us: logged_at_ms.and_then(|ms| i64::try_from(ms).ok()?.checked_mul(1_000)),
        found_at_us: now_us,
        der: issuance.der,
        domains,
    }
}

/// A stored verdict.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The issuance that was judged.
    pub issuance: CtIssuanceRow,
    /// The watched domain whose rule applied. `None` when none of the issuance's domains is watched any longer; the issuance is
    /// then expected.
    pub domain: Option<String>,
    /// Verdict: whether the issuance was expected.
    pub verdict: Verdict,
}

/// Judges issuances by the certificates known now. The caller passes pending issuances that were found more than [`GRACE`] ago,
/// from `Ct::judgeable_issuances`. Periodically the caller also passes recent unexpected issuances: their alert ends when a scan
/// finds the certificate. Expected issuances count as known certificates for their renewals. Returns the verdicts that this call
/// changed; verdicts that another node changed first are left out. Four statements on PostgreSQL.
///
/// # Errors
/// Database errors.
pub async fn judge_issuances(
    tx: &mut Tx,
    issuances: Vec<(CtIssuanceRow, Option<String>)>,
    rule_of: impl Fn(&str) -> IssuerRule,
) -> Result<Vec<Judged>, StoreError> {
    let Some(earliest) = issuances.iter().map(|(row, _)| row.not_before_us).min() else {
        return Ok(Vec::new());
    };
    let names: BTreeSet<&String> = issuances.iter().flat_map(|(row, _)| &row.names).collect();
    let names: Vec<String> = names.into_iter().cloned().collect();
    let ended_us = earliest.saturating_sub(LATE_RENEWAL.saturating_mul(SECOND_US));
    let mut known: Vec<KnownCertificate> = ct_known(tx, &names, ended_us)
        .await?
        .into_iter()
        .filter_map(|row| {
            let known_as = match (row.managed, row.issued) {
                (true, _) => KnownAs::Managed,
                (false, true) => KnownAs::Issued,
                (false, false) => KnownAs::Inventory,
            };
            KnownCertificate::from_der(&row.der, known_as)
        })
        .collect();
    let unwatched = reason_of(&Verdict::NotWatched);
    let expected = ct_expected(tx, &names, ended_us).await?;
    // Issuances found for a domain that is no longer watched do not count as known.
    known.extend(expected.iter().filter(|row| row.reason != unwatched).map(to_known_certificate));
    let judged: Vec<Judged> = issuances
        .into_iter()
        .map(|(issuance, domain)| {
            let verdict = match &domain {
                Some(domain) => judge(&issuance_of(&issuance), domain, &rule_of(domain), &known),
                None => Verdict::NotWatched,
            };
            Judged { issuance, domain, verdict }
        })
        .collect();
    let verdicts =
        judged.iter().map(|one| (one.issuance.id, to_stored_verdict(&one.verdict), reason_of(&one.verdict)));
    let stored: BTreeSet<Uuid> = judge_ct_issuances(tx, verdicts.collect()).await?.into_iter().collect();
    Ok(judged.into_iter().filter(|one| stored.contains(&one.issuance.id)).collect())
}

fn to_known_certificate(row: &CtIssuanceRow) -> KnownCertificate {
    let issuance = issuance_of(row);
    KnownCertificate {
        id: issuance.id,
        issuer: issuance.issuer,
        names: issuance.names,
        spki_sha256: issuance.spki_sha256,
        not_before: issuance.not_before,
        not_after: issuance.not_after,
        known_as: KnownAs::Expected,
    }
}

/// Converts a stored row to the issuance that [`judge`] needs.
fn issuance_of(row: &CtIssuanceRow) -> Issuance {
    Issuance {
        id: IssuanceId { issuer_serial: row.issuer_serial, tbs: row.tbs },
        issuer: row.issuer.clone(),
        serial: row.serial.parse().ok(),
        names: row.names.clone(),
        not_before: UnixTime(row.not_before_us.div_euclid(SECOND_US)),
        not_after: UnixTime(row.not_after_us.div_euclid(SECOND_US)),
        spki_sha256: row.spki_sha256,
        certificate_sha256: row.sha256,
        precertificate: false,
        readable: !row.serial.is_empty(),
        der: None,
    }
}
