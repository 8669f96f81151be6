//! Conversion of managed certificates, their deployments and counts to response bodies.

use agent::tables::DeploymentRow;
use api::certificates::{
    CertificateView, CreatedView, CurrentView, DeploymentView, GroupView, GroupsView, RunView, ServedView,
    SummaryView, VerifiedView, VersionView, ViolationView,
};
use lifecycle::managed::{ManagedCertificate, Run, Version};
use lifecycle::policy::Violation;
use lifecycle::tables::managed::{GroupBy, GroupTotal, Groups, ServedVersion};
use lifecycle::{Counts, Created};
use store::DAY_US;
use x509::Fingerprint;

use super::body::{key_location_body, target_body};
use crate::problem::Problem;
use crate::routes::inventory::endpoint_body;
use crate::time;

fn run_view(run: Run) -> RunView {
    RunView {
        job: run.job.0,
        state: run.state.name().to_owned(),
        next_attempt_at: time::shown(run.next_attempt_at_us),
        attempts: run.attempts,
    }
}

pub(super) fn certificate_view(certificate: ManagedCertificate) -> CertificateView {
    let renew_at = certificate.renew_at_us();
    let ends_at = certificate.ends_at_us();
    let served_status = match (&certificate.served, &certificate.current) {
        (None, _) => "not verified",
        (Some(served), Some(newest)) if served.fingerprint == newest.fingerprint => "newest",
        (Some(_), _) => "older",
    };
    let options = certificate.options;
    CertificateView {
        id: certificate.id,
        name: certificate.name,
        names: certificate.names.iter().map(ToString::to_string).collect(),
        status: certificate.state.name().to_owned(),
        profile: certificate.profile,
        issuer: certificate.issuer,
        owner: certificate.owner,
        team: certificate.team,
        tags: certificate.tags,
        environment: certificate.environment,
        policy: certificate.policy,
        key_location: key_location_body(certificate.key_location),
        key_type: certificate.key_type.name().to_owned(),
        targets: certificate.targets.into_iter().map(target_body).collect(),
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
        served: certificate.served.map(|version| VerifiedView {
            fingerprint: version.fingerprint.to_string(),
            not_before: time::shown(version.not_before_us),
            not_after: time::shown(version.not_after_us),
        }),
        served_status: served_status.to_owned(),
        ends_at: time::maybe_shown(ends_at),
        undeployed_since: time::maybe_shown(certificate.undeployed_since_us),
        renew_at: time::maybe_shown(renew_at),
        run: certificate.run.map(run_view),
        failures: certificate.failures,
        last_error: certificate.last_error,
        revision: certificate.revision,
        created_at: time::shown(certificate.created_at_us),
        updated_at: time::shown(certificate.updated_at_us),
    }
}

pub(super) fn created_view(created: Created) -> CreatedView {
    CreatedView {
        id: created.certificate,
        name: created.name,
        job: created.job.map(|job| job.0),
        violations: created.violations.into_iter().map(violation_view).collect(),
    }
}

fn violation_view(violation: Violation) -> ViolationView {
    ViolationView {
        policy: violation.policy,
        rule: violation.rule.to_owned(),
        severity: violation.severity.name().to_owned(),
        message: violation.message,
    }
}

pub(super) fn version_view(version: Version) -> VersionView {
    VersionView {
        fingerprint: version.fingerprint.to_string(),
        serial: version.serial,
        not_before: time::shown(version.not_before_us),
        not_after: time::shown(version.not_after_us),
        issuer: version.issuer,
        key_here: version.key_here,
        issued_at: time::shown(version.issued_at_us),
        revoked_at: version.revoked.map(|(at, _)| time::shown(at)),
        revoked_reason: version.revoked.map(|(_, reason)| reason.code()),
        chain: chain_pem(&version.chain),
    }
}

pub(super) fn served_view(served: ServedVersion, current: Option<Fingerprint>) -> ServedView {
    let fingerprint = Fingerprint::from_bytes(served.fingerprint);
    ServedView {
        endpoint: endpoint_body(served.endpoint),
        fingerprint: fingerprint.to_string(),
        current: current == Some(fingerprint),
        not_after: time::shown(served.not_after_us),
        answering: served.answering,
        last_seen_at: time::shown(served.seen_at_us),
    }
}

pub(super) fn chain_pem(chain: &[Vec<u8>]) -> String {
    chain.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect()
}

pub(super) fn deployment_view(row: DeploymentRow) -> DeploymentView {
    DeploymentView {
        target: row.requested.target,
        agent: row.requested.agent,
        state: row.state.name().to_owned(),
        fingerprint: Fingerprint::from_bytes(row.requested.fingerprint).to_string(),
        served: row.served.map(|served| Fingerprint::from_bytes(served).to_string()),
        attempts: row.attempts,
        error: row.error,
        created_at: time::shown(row.requested.created_at_us),
        updated_at: time::shown(row.updated_at_us),
    }
}

/// Number of coming days whose counts are shown one by one: the longest lifetime of public certificates.
const DAYS_SHOWN: usize = 398;

pub(super) fn groups_view(by: GroupBy, groups: Groups) -> GroupsView {
    let shown = |value: String| match by {
        GroupBy::ExpiryDay => value.parse().map_or(value, date),
        _ => value,
    };
    let view = |group: GroupTotal| GroupView { value: group.value.map(shown), count: group.count };
    GroupsView {
        by: by.name().to_owned(),
        groups: groups.groups.into_iter().map(view).collect(),
        counted: groups.counted,
        complete: groups.complete,
    }
}

/// Parses the names of properties that are separated by commas.
///
/// # Errors
/// 400 for an unknown or repeated name.
pub(super) fn facet_names(text: &str) -> Result<Vec<GroupBy>, Problem> {
    let mut all: Vec<GroupBy> = Vec::new();
    for name in text.split(',') {
        let by: GroupBy = name.trim().parse().map_err(Problem::bad_request)?;
        if all.contains(&by) {
            return Err(
                Problem::bad_request(format!("{by} is twice in `by`")).hint("name each property once")
            );
        }
        all.push(by);
    }
    Ok(all)
}

/// Formats a day number (days since 1970-01-01) as an RFC 3339 date.
fn date(day: i64) -> String {
    time::shown(day.saturating_mul(DAY_US)).chars().take(10).collect()
}

/// Returns the summary of all managed certificates. `short_lived` is the number of certificates whose profile issues for at most 47
/// days.
pub(super) fn summary_view(counts: Counts, short_lived: u64) -> SummaryView {
    let today = counts.today;
    let by_day = counts.by_day.range(today..).take(DAYS_SHOWN);
    SummaryView {
        certificates: counts.certificates,
        statuses: counts.states.iter().map(|(state, count)| (state.name().to_owned(), *count)).collect(),
        expired: counts.expired,
        not_deployed: counts.undeployed,
        expiring_days: counts.expiring_days.iter().map(|(days, count)| (days.to_string(), *count)).collect(),
        by_day: by_day.map(|(day, count)| (date(*day), *count)).collect(),
        short_lived,
        due: counts.due,
        due_counted_to: counts.due_counted_to,
    }
}
