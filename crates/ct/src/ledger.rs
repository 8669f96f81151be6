//! What was found, written down and judged, in the caller's transaction: with the cursor or place it came with, and with
//! the events that tell of it.

use std::collections::BTreeSet;
use std::time::Duration;

use store::{StoreError, Tx};
use uuid::Uuid;
use x509::UnixTime;

use super::DomainSet;
use super::follow::Match;
use super::issuance::{
    Issuance, IssuanceId, IssuerRule, KnownAs, KnownCertificate, LATE_RENEWAL, Verdict, judge,
};
use crate::tables::{
    CtIssuanceRow, CtVerdict, NewCtIssuance, ct_expected, ct_known, judge_ct_issuances, record_ct_issuances,
};

/// How long an issuance waits for its verdict. A precertificate is logged before the issuer answers, so a renewal of
/// our own is in the logs before it is in the database; deployment and the next scan come later still.
pub const GRACE: Duration = Duration::from_secs(900);

/// Microseconds of a second.
const SECOND_US: i64 = 1_000_000;

/// An issuance and its source.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// The issuance.
    pub issuance: Issuance,
    /// The watched domains it could be used for.
    pub domains: Vec<String>,
    /// The log's or service's name.
    pub source: String,
    /// When it was logged, where the source says so, milliseconds since 1970 UTC.
    pub logged_at_ms: Option<u64>,
}

impl Sighting {
    /// A log's match.
    #[must_use]
    pub fn in_log(found: Match, domains: &DomainSet, log: &str) -> Self {
        let named = found.domains.iter().filter_map(|id| domains.domain(*id)).map(str::to_owned);
        Self {
            domains: named.collect(),
            issuance: found.issuance,
            source: log.to_owned(),
            logged_at_ms: Some(found.timestamp_ms),
        }
    }

    /// A search service's answer to a question about `domain`. `domains` are all that are watched: a certificate may be
    /// for several.
    #[must_use]
    pub fn in_search(issuance: Issuance, domain: &str, domains: &DomainSet, service: &str) -> Self {
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

/// Stores found issuances; returns the ids of new ones. They have no verdict yet: see [`judge_issuances`].
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn record(tx: &mut Tx, found: Vec<Sighting>, now_us: i64) -> Result<Vec<Uuid>, StoreError> {
    let rows = found.into_iter().map(|one| row_of(one, now_us)).collect();
    record_ct_issuances(tx, rows).await
}

/// Gives issuances a verdict that needs no judging; answers those that it moved.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn settle(tx: &mut Tx, issuances: &[Uuid], verdict: &Verdict) -> Result<Vec<Uuid>, StoreError> {
    let reason = reason_of(verdict);
    let stored = stored_as(verdict);
    judge_ct_issuances(tx, issuances.iter().map(|id| (*id, stored, reason.clone())).collect()).await
}

fn stored_as(verdict: &Verdict) -> CtVerdict {
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

/// Always serialises.
fn reason_of(verdict: &Verdict) -> String {
    serde_json::to_string(verdict).unwrap_or_default()
}

fn row_of(found: Sighting, now_us: i64) -> NewCtIssuance {
    let Sighting { issuance, domains, source, logged_at_ms } = found;
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

/// A verdict, as it was stored.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The issuance.
    pub issuance: CtIssuanceRow,
    /// The watched domain it was judged by; `None` when none is watched any more, and then it is expected.
    pub domain: Option<String>,
    /// Whether the issuance was expected.
    pub verdict: Verdict,
}

/// Judges issuances by what is known now: pending ones that have waited long enough (`Store::ct_issuances_judgeable`,
/// found before now less [`GRACE`]), and now and then unasked ones of late, whose alert is over once they turn out to be
/// known (a scan has met them). Expected issuances speak for their renewals as known certificates do. Answers the verdicts
/// that moved: those that another node was faster with are its to tell of. Four statements, on PostgreSQL.
///
/// # Errors
/// Those of the database.
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
    // What was found for a domain that was given up is nobody's word for anything.
    known.extend(expected.iter().filter(|row| row.reason != unwatched).map(known_of));
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
        judged.iter().map(|one| (one.issuance.id, stored_as(&one.verdict), reason_of(&one.verdict)));
    let stored: BTreeSet<Uuid> = judge_ct_issuances(tx, verdicts.collect()).await?.into_iter().collect();
    Ok(judged.into_iter().filter(|one| stored.contains(&one.issuance.id)).collect())
}

fn known_of(row: &CtIssuanceRow) -> KnownCertificate {
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

/// The issuance, in the form that [`judge`] needs.
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
