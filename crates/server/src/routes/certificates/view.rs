//! What callers are shown.

use std::collections::BTreeMap;

use lifecycle::managed::{ManagedCertificate, Run, Version};
use lifecycle::policy::Violation;
use lifecycle::{Counts, Created};
use serde::Serialize;
use serde_json::Value;
use store::agents::DeploymentRow;
use store::managed::ServedVersion;
use utoipa::ToSchema;
use uuid::Uuid;
use x509::Fingerprint;

use super::body::{KeyLocationBody, TargetBody};
use crate::routes::inventory::EndpointBody;
use crate::time;

/// A day, µs.
const DAY_US: i64 = 86_400_000_000;

/// A certificate under management.
#[derive(Serialize, ToSchema)]
pub(super) struct CertificateView {
    /// Its identity.
    id: Uuid,
    /// Its name.
    name: String,
    /// What it speaks for.
    names: Vec<String>,
    /// What it waits for: `pending`, `awaiting_approval`, `awaiting_csr`, `issuing`, `deploying`, `active`, `failed`,
    /// `revoked`, `archived`.
    status: &'static str,
    /// The profile it is issued by.
    profile: String,
    /// The issuer asked.
    issuer: String,
    /// Who answers for it.
    owner: Option<String>,
    /// The team that does.
    team: Option<String>,
    /// Labels of people's own.
    tags: BTreeMap<String, String>,
    /// Where it is used.
    environment: Option<String>,
    /// The policy that says when it is renewed.
    policy: Option<String>,
    /// Where its key is.
    key_location: KeyLocationBody,
    /// The kind of its key.
    key_type: &'static str,
    /// Where it goes.
    targets: Vec<TargetBody>,
    /// Whether the scheduler renews it.
    auto_renew: bool,
    /// When it is renewed, in place of its policy's rule.
    #[schema(value_type = Option<Object>)]
    renewal: Option<Value>,
    /// How long a version is to be valid, seconds.
    lifetime_seconds: Option<i64>,
    /// The subject.
    subject: Option<String>,
    /// Whether servers must staple.
    must_staple: bool,
    /// The external issuer's own profile or role.
    issuer_profile: Option<String>,
    /// For people.
    notes: String,
    /// The newest version.
    current: Option<CurrentView>,
    /// When its next run begins, RFC 3339.
    renew_at: Option<String>,
    /// The run that is planned or under way.
    run: Option<RunView>,
    /// Runs without success since the last one with.
    failures: u32,
    /// What the last of them said.
    last_error: Option<String>,
    /// Moves with every change.
    revision: i64,
    /// When it was entered, RFC 3339.
    created_at: String,
    /// When it last changed, RFC 3339.
    updated_at: String,
}

/// The newest version.
#[derive(Serialize, ToSchema)]
struct CurrentView {
    /// SHA-256 of the leaf.
    fingerprint: String,
    /// Start of validity, RFC 3339.
    not_before: String,
    /// End of validity, RFC 3339.
    not_after: String,
    /// Whether it is revoked.
    revoked: bool,
}

/// A run that is planned or under way.
#[derive(Serialize, ToSchema)]
struct RunView {
    /// The job.
    job: Uuid,
    /// How far it is.
    state: &'static str,
    /// When it begins, or tries again, RFC 3339.
    next_attempt_at: String,
    /// How often it was tried.
    attempts: u32,
}

impl RunView {
    fn of(run: Run) -> Self {
        Self {
            job: run.job.0,
            state: run.state.as_str(),
            next_attempt_at: time::shown(run.next_attempt_at_us),
            attempts: run.attempts,
        }
    }
}

impl CertificateView {
    pub(super) fn of(certificate: ManagedCertificate) -> Self {
        let renew_at = certificate.renew_at_us();
        let options = certificate.options;
        Self {
            id: certificate.id,
            name: certificate.name,
            names: certificate.names.iter().map(ToString::to_string).collect(),
            status: certificate.state.as_str(),
            profile: certificate.profile,
            issuer: certificate.issuer,
            owner: certificate.owner,
            team: certificate.team,
            tags: certificate.tags,
            environment: certificate.environment,
            policy: certificate.policy,
            key_location: certificate.key_location.into(),
            key_type: certificate.key_type.name(),
            targets: certificate.targets.into_iter().map(Into::into).collect(),
            auto_renew: options.auto_renew,
            renewal: options.renewal.and_then(|rule| serde_json::to_value(rule).ok()),
            lifetime_seconds: options.lifetime_seconds,
            subject: options.subject,
            must_staple: options.must_staple,
            issuer_profile: options.issuer_profile,
            notes: options.notes,
            current: certificate.current.map(|version| CurrentView {
                fingerprint: version.fingerprint.to_string(),
                not_before: time::shown(version.not_before_us),
                not_after: time::shown(version.not_after_us),
                revoked: version.revoked,
            }),
            renew_at: time::maybe_shown(renew_at),
            run: certificate.run.map(RunView::of),
            failures: certificate.failures,
            last_error: certificate.last_error,
            revision: certificate.revision,
            created_at: time::shown(certificate.created_at_us),
            updated_at: time::shown(certificate.updated_at_us),
        }
    }
}

/// A certificate that was entered.
#[derive(Serialize, ToSchema)]
pub(super) struct CreatedView {
    /// Its identity.
    id: Uuid,
    /// Its name.
    name: String,
    /// The run that issues it, if it is issued now.
    job: Option<Uuid>,
    /// What it does against policies that only advise.
    violations: Vec<ViolationView>,
}

impl CreatedView {
    pub(super) fn of(created: Created) -> Self {
        Self {
            id: created.certificate,
            name: created.name,
            job: created.job.map(|job| job.0),
            violations: created.violations.into_iter().map(ViolationView::of).collect(),
        }
    }
}

/// A rule broken.
#[derive(Serialize, ToSchema)]
#[schema(as = CertificateViolation)]
pub(super) struct ViolationView {
    /// The policy.
    policy: String,
    /// The rule.
    rule: &'static str,
    /// `info`, `warning`, `error` or `critical`.
    severity: &'static str,
    /// For people.
    message: String,
}

impl ViolationView {
    fn of(violation: Violation) -> Self {
        Self {
            policy: violation.policy,
            rule: violation.rule,
            severity: violation.severity.as_str(),
            message: violation.message,
        }
    }
}

/// A version.
#[derive(Serialize, ToSchema)]
pub(super) struct VersionView {
    /// SHA-256 of the leaf.
    fingerprint: String,
    /// Its serial number, hexadecimal.
    serial: String,
    /// Start of validity, RFC 3339.
    not_before: String,
    /// End of validity, RFC 3339.
    not_after: String,
    /// The issuer asked.
    issuer: String,
    /// Whether this server holds the key.
    key_here: bool,
    /// When it came, RFC 3339.
    issued_at: String,
    /// When it was revoked, RFC 3339.
    revoked_at: Option<String>,
    /// Why: the CRLReason's number (RFC 5280 section 5.3.1).
    revoked_reason: Option<i64>,
    /// The chain, PEM, leaf first.
    chain: String,
}

impl VersionView {
    pub(super) fn of(version: Version) -> Self {
        Self {
            fingerprint: version.fingerprint.to_string(),
            serial: version.serial,
            not_before: time::shown(version.not_before_us),
            not_after: time::shown(version.not_after_us),
            issuer: version.issuer,
            key_here: version.key_here,
            issued_at: time::shown(version.issued_at_us),
            revoked_at: version.revoked.map(|(at, _)| time::shown(at)),
            revoked_reason: version.revoked.map(|(_, reason)| reason),
            chain: chain_pem(&version.chain),
        }
    }
}

/// An endpoint that showed a version when a scan last looked.
#[derive(Serialize, ToSchema)]
pub(super) struct ServedView {
    /// Where.
    endpoint: EndpointBody,
    /// SHA-256 of the version's leaf.
    fingerprint: String,
    /// Whether that is the current version.
    current: bool,
    /// End of that version's validity, RFC 3339.
    not_after: String,
    /// Whether the last look saw a certificate.
    answering: bool,
    /// The last look, RFC 3339.
    last_seen_at: String,
}

impl ServedView {
    pub(super) fn of(served: ServedVersion, current: Option<Fingerprint>) -> Self {
        let fingerprint = Fingerprint::from_bytes(served.fingerprint);
        Self {
            endpoint: served.endpoint.into(),
            fingerprint: fingerprint.to_string(),
            current: current == Some(fingerprint),
            not_after: time::shown(served.not_after_us),
            answering: served.answering,
            last_seen_at: time::shown(served.seen_at_us),
        }
    }
}

pub(super) fn chain_pem(chain: &[Vec<u8>]) -> String {
    chain.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect()
}

/// Where a version was brought.
#[derive(Serialize, ToSchema)]
#[schema(as = CertificateDeployment)]
pub(super) struct DeploymentView {
    /// The target.
    target: Uuid,
    /// Its agent.
    agent: Uuid,
    /// `waiting`, `deployed`, `unchanged`, `failed`, `rolled_back`, `broken` or `cancelled`.
    state: &'static str,
    /// SHA-256 of the leaf that was brought.
    fingerprint: String,
    /// SHA-256 of the leaf that the endpoint showed afterwards.
    served: Option<String>,
    /// How often it was tried.
    attempts: i64,
    /// What the last try said.
    error: Option<String>,
    /// When it was asked for, RFC 3339.
    created_at: String,
    /// When it last changed, RFC 3339.
    updated_at: String,
}

impl DeploymentView {
    pub(super) fn of(row: DeploymentRow) -> Self {
        let state = match row.state {
            0 => "waiting",
            1 => "deployed",
            2 => "unchanged",
            3 => "failed",
            4 => "rolled_back",
            5 => "broken",
            _ => "cancelled",
        };
        Self {
            target: row.asked.target,
            agent: row.asked.agent,
            state,
            fingerprint: Fingerprint::from_bytes(row.asked.fingerprint).to_string(),
            served: row.served.map(|served| Fingerprint::from_bytes(served).to_string()),
            attempts: row.attempts,
            error: row.error,
            created_at: time::shown(row.asked.created_at_us),
            updated_at: time::shown(row.updated_at_us),
        }
    }
}

/// Counts over everything under management.
#[derive(Serialize, ToSchema)]
pub(super) struct SummaryView {
    /// Certificates that are not archived.
    certificates: u64,
    /// By status.
    statuses: BTreeMap<&'static str, u64>,
    /// Ended already.
    expired: u64,
    /// Ending within so many days from now.
    #[schema(example = json!({"7": 2, "30": 10, "90": 40}))]
    expiring_days: BTreeMap<String, u64>,
    /// Endings by day, RFC 3339 dates, those of the past left out.
    by_day: BTreeMap<String, u64>,
    /// Runs that are due and not begun, by issuer.
    due: BTreeMap<String, u64>,
    /// Counting of due runs stops here: as many means "at least".
    due_counted_to: u64,
}

/// Days ahead shown one by one: the longest life of public certificates.
const DAYS_SHOWN: usize = 398;

impl SummaryView {
    pub(super) fn of(counts: Counts) -> Self {
        let today = counts.today;
        let by_day = counts.by_day.range(today..).take(DAYS_SHOWN);
        let date = |day: i64| time::shown(day.saturating_mul(DAY_US)).chars().take(10).collect();
        Self {
            certificates: counts.certificates,
            statuses: counts.states.iter().map(|(state, count)| (state.as_str(), *count)).collect(),
            expired: counts.expired,
            expiring_days: counts
                .expiring_days
                .iter()
                .map(|(days, count)| (days.to_string(), *count))
                .collect(),
            by_day: by_day.map(|(day, count)| (date(*day), *count)).collect(),
            due: counts.due,
            due_counted_to: counts.due_counted_to,
        }
    }
}
