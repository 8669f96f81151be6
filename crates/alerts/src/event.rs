//! Effects of outbox events on alerts: raise or resolve alerts, and start or stop watching an expiry.

use events::{
    CertificateChange, CertificateIssued, CertificateRevoked, Condition, CtLogAlarm, Drift, Event,
    ManagedCertificate, Ownership, WatchRun,
};
use x509::Severity;

use crate::rule::Attributes;

/// The effect of an event on alerts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AlertEffect {
    /// Raise an alert.
    Raise { kind: &'static str, subject: String, severity: Severity, title: String, attributes: Attributes },
    /// The alert's condition ended.
    Resolve { subject: String, kinds: &'static [&'static str] },
    /// A certificate is in use now. Watch its expiry.
    Watch { subject: String, not_before_us: i64, not_after_us: i64, attributes: Attributes },
    /// Stop watching the expiry of a certificate.
    Forget { subject: String },
}

/// Kinds of alerts that an issuance run can leave open.
const RUN_TROUBLE: &[&str] = &["certificate.failed", "certificate.approval_needed"];

/// Kinds of alerts that end when a certificate is no longer managed.
const MANAGED_TROUBLE: &[&str] = &[
    "certificate.failed",
    "certificate.approval_needed",
    "certificate.expiring",
    "certificate.not_deployed",
    "certificate.revoked",
];

/// Kinds of alerts that runs of a watch can leave open.
const WATCH_TROUBLE: &[&str] = &["watch.failed", "watch.untold", "watch.incomplete"];

/// Returns the alert kinds, the severity and the text for an endpoint's condition.
fn trouble(condition: Condition) -> (&'static [&'static str], Severity, &'static str) {
    match condition {
        Condition::Mismatch => {
            (&["endpoint.mismatch"], Severity::High, "serves a certificate for another name")
        }
        Condition::Untrusted => {
            (&["endpoint.untrusted"], Severity::High, "serves a chain that clients do not trust")
        }
        Condition::Weak => {
            (&["endpoint.weak"], Severity::Medium, "uses a key, signature or protocol that is too weak")
        }
        Condition::Revoked => {
            (&["endpoint.revoked"], Severity::Critical, "serves a certificate that is revoked")
        }
        Condition::KeyNotProven => {
            (&["endpoint.key_not_proven"], Severity::Critical, "did not prove that it has its private key")
        }
        Condition::Outdated => (
            &["endpoint.outdated"],
            Severity::High,
            "serves a certificate version that was replaced long ago",
        ),
        Condition::Silent => (&["endpoint.silent"], Severity::High, "no longer answers"),
        Condition::NotYetValid => {
            (&["endpoint.not_yet_valid"], Severity::High, "serves a certificate that is not valid yet")
        }
        Condition::ChainEnds => (
            &["endpoint.chain_ends"],
            Severity::High,
            "serves a chain that expires before its leaf certificate, or soon",
        ),
        Condition::Critical => (&["endpoint.critical"], Severity::Critical, "has a critical finding"),
    }
}

/// Returns the effects of an event on alerts: none, one or several. Handles every kind of event.
pub(crate) fn event_effects(subject: &str, event: &Event) -> Vec<AlertEffect> {
    let subject = subject.to_owned();
    match event {
        Event::CertificateIssued(CertificateIssued::Version(version)) => {
            let mut all = vec![resolve(subject.clone(), RUN_TROUBLE)];
            // A newer version does not change the expiry of the served certificate. The served certificate is watched until the
            // endpoint serves another.
            if version.certificate.served_not_after_us.is_none() {
                all.extend(restart_expiry_watch(subject, &version.certificate));
            }
            all
        }
        Event::CertificateServed(served) => restart_expiry_watch(subject, &served.certificate),
        Event::CertificateDeploymentLate(late) => {
            let attributes = Attributes { detail: late.error.clone(), ..managed(&late.certificate) };
            let title = format!("{}: the new version is not deployed everywhere", late.certificate.name);
            vec![raise("certificate.not_deployed", subject, Severity::High, title, attributes)]
        }
        // The certificate is not managed: it raises no alerts.
        Event::CertificateIssued(CertificateIssued::ByAuthority(_)) => Vec::new(),
        // A discovered certificate becomes managed: its own expiry alert is replaced by the managed certificate's.
        Event::CertificateClaimed(claimed) => {
            let found = format!("found/{}", claimed.fingerprint);
            let mut all = vec![
                resolve(found.clone(), &["certificate.expiring"]),
                AlertEffect::Forget { subject: found },
            ];
            all.extend(watch(subject, &claimed.certificate));
            all
        }
        Event::CertificateRestored(certificate) => watch(subject, certificate).into_iter().collect(),
        Event::CertificateFound(found) => vec![AlertEffect::Watch {
            subject,
            not_before_us: found.not_before_us,
            not_after_us: found.not_after_us,
            attributes: owned(&found.ownership, &found.found.name, &found.found.issuer, &found.detail),
        }],
        Event::CertificateUnserved(_) | Event::CertificateDismissed(_) => {
            vec![resolve(subject.clone(), &["certificate.expiring"]), AlertEffect::Forget { subject }]
        }
        Event::CertificateDeployed(_) => {
            vec![resolve(subject, &["certificate.failed", "certificate.not_deployed"])]
        }
        Event::CertificateFailed(failed) => {
            let attributes = Attributes { detail: failed.error.clone(), ..managed(&failed.certificate) };
            let (kind, problem) = match failed.deployment {
                None => ("certificate.failed", "the last run failed"),
                Some(_) => ("certificate.not_deployed", "the new version could not be deployed"),
            };
            let title = format!("{}: {problem}", failed.certificate.name);
            vec![raise(kind, subject, Severity::High, title, attributes)]
        }
        Event::CertificateApprovalNeeded(run) => {
            let title = format!("{} waits for approval", run.certificate.name);
            let attributes = managed(&run.certificate);
            vec![raise("certificate.approval_needed", subject, Severity::Low, title, attributes)]
        }
        Event::CertificateRejected(_) | Event::CertificateCancelled(_) => {
            vec![resolve(subject, &["certificate.approval_needed"])]
        }
        Event::CertificateRevoked(CertificateRevoked::Version(version)) => {
            let title = format!("{} was revoked", version.certificate.name);
            let attributes = managed(&version.certificate);
            vec![
                raise("certificate.revoked", subject.clone(), Severity::High, title, attributes),
                AlertEffect::Forget { subject },
            ]
        }
        // The CA reports every revocation; people are alerted only about managed certificates.
        Event::CertificateRevoked(CertificateRevoked::ByAuthority(_)) | Event::CertificatesRevoked(_) => {
            Vec::new()
        }
        Event::CertificateArchived(_) => {
            vec![resolve(subject.clone(), MANAGED_TROUBLE), AlertEffect::Forget { subject }]
        }
        Event::AgentOffline(agent) => {
            let (title, attributes) = (format!("agent {} is offline", agent.name), named(&agent.name, None));
            vec![raise("agent.offline", subject, Severity::High, title, attributes)]
        }
        Event::AgentOnline(_) => vec![resolve(subject, &["agent.offline"])],
        Event::IssuerUnhealthy(issuer) => {
            let title = format!("issuer {} does not issue certificates", issuer.name);
            let attributes = named(&issuer.name, issuer.detail.as_deref());
            vec![raise("issuer.unhealthy", subject, Severity::High, title, attributes)]
        }
        Event::IssuerHealthy(_) => vec![resolve(subject, &["issuer.unhealthy"])],
        Event::EndpointTrouble(found) => {
            let (kinds, severity, problem) = trouble(found.condition);
            let endpoint = &found.endpoint;
            let title = format!("{} {problem}", endpoint.name);
            let attributes = owned(&found.ownership, &endpoint.name, &endpoint.issuer, &found.detail);
            vec![raise(kinds[0], subject, severity, title, attributes)]
        }
        Event::EndpointTroubleOver(over) => vec![resolve(subject, trouble(over.condition).0)],
        Event::EndpointCertificateChanged(changed) => {
            let (kind, severity, problem) = match changed.change {
                _ if changed.quiet => return Vec::new(),
                CertificateChange::New => {
                    ("endpoint.new_certificate", Severity::Low, "is new and serves a certificate")
                }
                CertificateChange::Chain => {
                    ("endpoint.chain_changed", Severity::Medium, "serves a certificate with another chain")
                }
                CertificateChange::Renewed => return Vec::new(),
            };
            let endpoint = &changed.endpoint;
            let title = format!("{} {problem}", endpoint.name);
            let attributes = owned(&changed.ownership, &endpoint.name, &endpoint.issuer, &changed.detail);
            vec![raise(kind, subject, severity, title, attributes)]
        }
        Event::CtUnexpectedIssuance(issuance) => {
            let name = issuance.name.as_deref().unwrap_or(&subject);
            let title = format!("{name}: unexpected certificate from {}", issuance.issuer);
            let attributes = Attributes {
                name: issuance.name.clone(),
                issuer: Some(issuance.issuer.clone()),
                detail: Some(issuance.detail.clone()),
                ..Attributes::default()
            };
            vec![raise("ct.unexpected_issuance", subject, Severity::High, title, attributes)]
        }
        Event::CtIssuanceExpected(_) | Event::CtIssuanceAcknowledged(_) => {
            vec![resolve(subject, &["ct.unexpected_issuance"])]
        }
        Event::CtLogInconsistent(log) => {
            // Two contradicting signed statements are proof; other alarms may be caused by a broken cache.
            let severity = match log.alarm {
                CtLogAlarm::Forked | CtLogAlarm::RolledBack => Severity::Critical,
                CtLogAlarm::WrongTile | CtLogAlarm::BadCheckpoint => Severity::High,
            };
            let title = format!("the CT log {} is inconsistent", log.name);
            vec![raise("ct.log_inconsistent", subject, severity, title, named(&log.name, Some(&log.detail)))]
        }
        Event::CtLogConsistent(_) => vec![resolve(subject, &["ct.log_inconsistent"])],
        Event::CtBehind(lag) => {
            let title = format!("{} has reported no certificates for too long", lag.name);
            vec![raise("ct.behind", subject, Severity::Medium, title, named(&lag.name, Some(&lag.detail)))]
        }
        Event::CtCaughtUp(_) => vec![resolve(subject, &["ct.behind"])],
        Event::WatchFailed(run) => {
            let title = format!("watch {}: the last run failed", run.name);
            let attributes = named(&run.name, run.error.as_deref());
            vec![raise("watch.failed", subject, Severity::Medium, title, attributes)]
        }
        Event::WatchFinished(run) => watch_run_effects(&subject, run),
        Event::WatchRemoved(_) => vec![resolve(subject, WATCH_TROUBLE)],
        Event::CredentialRotationFailed(failed) => {
            let title = format!("{} was not rotated", failed.name);
            let attributes = named(&failed.name, Some(&failed.error));
            vec![raise("credential.rotation_failed", subject, Severity::High, title, attributes)]
        }
        Event::CredentialRotationRecovered(_) => vec![resolve(subject, &["credential.rotation_failed"])],
        Event::CredentialLeaseRevocationFailed(failed) => {
            let title = format!("leases of {} cannot be revoked", failed.name);
            let attributes = named(&failed.name, failed.error.as_deref());
            vec![raise("credential.lease_revocation_failed", subject, Severity::High, title, attributes)]
        }
        Event::CredentialLeaseRevocationRecovered(_) => {
            vec![resolve(subject, &["credential.lease_revocation_failed"])]
        }
        Event::AuditBroken(broken) => {
            let attributes = Attributes { detail: Some(broken.detail.clone()), ..Attributes::default() };
            let title = "the audit log was tampered with".to_owned();
            vec![raise("audit.broken", subject, Severity::Critical, title, attributes)]
        }
        Event::AuditWitnessFailing(witness) => {
            let title = format!("the audit log witness {} does not accept signed heads", witness.name);
            let attributes = named(&witness.name, witness.error.as_deref());
            vec![raise("audit.witness_failing", subject, Severity::High, title, attributes)]
        }
        Event::AuditWitnessRecovered(_) => vec![resolve(subject, &["audit.witness_failing"])],
        Event::DriftScanSlow(series) => {
            let problem = "scans take at least 25 % longer than over the last week";
            vec![drift("drift.scan_slow", subject, Severity::Medium, series, problem)]
        }
        Event::DriftScanSlowOver(_) => vec![resolve(subject, &["drift.scan_slow"])],
        Event::DriftProviderErrors(series) => {
            let problem = "more than 1 % of calls fail";
            vec![drift("drift.provider_errors", subject, Severity::High, series, problem)]
        }
        Event::DriftProviderErrorsOver(_) => vec![resolve(subject, &["drift.provider_errors"])],
        Event::DriftDatabasePool(series) => {
            let problem = "more than 80 % of the database connections are in use";
            vec![drift("drift.database_pool", subject, Severity::High, series, problem)]
        }
        Event::DriftDatabasePoolOver(_) => vec![resolve(subject, &["drift.database_pool"])],
        Event::DriftTasks(series) => {
            let problem = "a process has five times as many tasks as over the last week";
            vec![drift("drift.tasks", subject, Severity::High, series, problem)]
        }
        Event::DriftTasksOver(_) => vec![resolve(subject, &["drift.tasks"])],
        // No action is needed, or another event reports it.
        Event::CertificateCreated(_)
        | Event::CertificateChanged(_)
        | Event::CertificateCsrNeeded(_)
        | Event::CertificateRevocationFailed(_)
        | Event::ProfileChanged(_)
        | Event::EnrolmentWaiting(_)
        | Event::EnrolmentDecided(_)
        | Event::ApprovalGiven(_)
        | Event::ChangeWaiting(_)
        | Event::ChangeDecided(_)
        | Event::AcmeAccountCreated(_)
        | Event::AcmeAccountUpdated(_)
        | Event::AcmeAccountDeactivated(_)
        | Event::AcmeAccountKeyChanged(_)
        | Event::AcmeAccountRevoked(_)
        | Event::AcmeOrderCompleted(_)
        | Event::AcmeOrderRefused(_)
        | Event::CredentialChanged(_)
        | Event::CredentialDeleted(_) => Vec::new(),
    }
}

fn raise(
    kind: &'static str,
    subject: String,
    severity: Severity,
    title: String,
    attributes: Attributes,
) -> AlertEffect {
    AlertEffect::Raise { kind, subject, severity, title, attributes }
}

fn resolve(subject: String, kinds: &'static [&'static str]) -> AlertEffect {
    AlertEffect::Resolve { subject, kinds }
}

fn drift(
    kind: &'static str,
    subject: String,
    severity: Severity,
    series: &Drift,
    problem: &str,
) -> AlertEffect {
    let title = format!("{}: {problem}", series.name);
    raise(kind, subject, severity, title, named(&series.name, Some(&series.detail)))
}

/// Returns the alerts to raise and to resolve after a watch run.
fn watch_run_effects(subject: &str, run: &WatchRun) -> Vec<AlertEffect> {
    let counts = run.counts.clone().unwrap_or_default();
    let ended = |kinds| resolve(subject.to_owned(), kinds);
    let trouble = |kind, severity, title, detail| {
        let attributes = Attributes { detail, ..named(&run.name, None) };
        raise(kind, subject.to_owned(), severity, title, attributes)
    };
    let much = if counts.untold > 0 {
        let title =
            format!("watch {} found {} more results than it reports in one run", run.name, counts.untold);
        trouble("watch.untold", Severity::Medium, title, None)
    } else {
        ended(&["watch.untold"])
    };
    let part = if counts.not_listed > 0 {
        let title =
            format!("watch {} could not list {} of its clouds completely", run.name, counts.not_listed);
        trouble("watch.incomplete", Severity::High, title, Some(counts.not_listed_first.join("; ")))
    } else {
        ended(&["watch.incomplete"])
    };
    vec![ended(&["watch.failed"]), much, part]
}

/// Returns attributes that contain only a name and an optional description of the problem.
fn named(name: &str, detail: Option<&str>) -> Attributes {
    Attributes { name: Some(name.to_owned()), detail: detail.map(str::to_owned), ..Attributes::default() }
}

/// Returns the alert attributes of a certificate that a watch found: its ownership, name, issuer and detail.
fn owned(ownership: &Ownership, name: &str, issuer: &str, detail: &str) -> Attributes {
    Attributes {
        owner: ownership.owner.clone(),
        team: ownership.team.clone(),
        environment: ownership.environment.clone(),
        tags: ownership.tags.clone(),
        issuer: Some(issuer.to_owned()),
        ..named(name, Some(detail))
    }
}

/// Returns the attributes of a managed certificate.
fn managed(certificate: &ManagedCertificate) -> Attributes {
    Attributes {
        name: Some(certificate.name.clone()),
        owner: certificate.owner.clone(),
        team: certificate.team.clone(),
        environment: certificate.environment.clone(),
        issuer: Some(certificate.issuer.clone()),
        profile: Some(certificate.profile.clone()),
        tags: certificate.tags.clone(),
        ..Attributes::default()
    }
}

/// Watches the new expiry of a managed certificate and resolves the alerts about the previous one.
fn restart_expiry_watch(subject: String, certificate: &ManagedCertificate) -> Vec<AlertEffect> {
    let mut all = vec![resolve(subject.clone(), &["certificate.expiring"])];
    all.extend(watch(subject, certificate));
    all
}

/// Watches the expiry of a managed certificate that has a version: the expiry of the served version, else of the newest version.
fn watch(subject: String, certificate: &ManagedCertificate) -> Option<AlertEffect> {
    let served = certificate.served_not_before_us.zip(certificate.served_not_after_us);
    let (not_before_us, not_after_us) = served.or(certificate.not_before_us.zip(certificate.not_after_us))?;
    Some(AlertEffect::Watch { subject, not_before_us, not_after_us, attributes: managed(certificate) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use events::{
        AgentContact, CertificateFound, CertificateServed, CertificateUnserved, CtForgotten, CtIssuance,
        CtIssuanceDecision, CtIssuanceExpected, CtLag, CtLagEnded, CtLogConsistent, CtLogInconsistent,
        EndpointCertificate, EndpointCertificateChanged, EndpointTrouble, EndpointTroubleOver,
        IssuedByAuthority, IssuedVersion, RevokedByAuthority, Run, WatchCounts, WatchRemoved,
    };
    use uuid::Uuid;
    use x509::Fingerprint;

    use super::*;

    fn of(event: &Event) -> Vec<AlertEffect> {
        event_effects("certificate/1", event)
    }

    fn fingerprint() -> Fingerprint {
        Fingerprint::from_bytes([1; 32])
    }

    fn endpoint() -> EndpointCertificate {
        EndpointCertificate {
            name: "a.example:443".to_owned(),
            watch: "edge".to_owned(),
            group: String::new(),
            issuer: "CN=Issuer".to_owned(),
            certificate: fingerprint(),
            certificate_name: "a.example".to_owned(),
        }
    }

    fn ownership() -> Ownership {
        Ownership { team: Some("t".to_owned()), ..Ownership::default() }
    }

    fn web() -> ManagedCertificate {
        ManagedCertificate {
            name: "web".to_owned(),
            team: Some("t".to_owned()),
            not_before_us: Some(1),
            not_after_us: Some(1_000_000),
            ..ManagedCertificate::default()
        }
    }

    fn run(counts: WatchCounts) -> WatchRun {
        WatchRun { name: "edge".to_owned(), counts: Some(counts), ..WatchRun::default() }
    }

    #[test]
    fn claiming_a_certificate_resolves_its_found_alert() {
        let claimed = events::CertificateClaimed { certificate: web(), fingerprint: fingerprint() };
        let all = of(&Event::CertificateClaimed(claimed));
        let found = format!("found/{}", fingerprint());
        let ends = |meaning: &AlertEffect| matches!(meaning, AlertEffect::Resolve { subject, .. } if *subject == found);
        let forgets =
            |meaning: &AlertEffect| matches!(meaning, AlertEffect::Forget { subject } if *subject == found);
        let watches = |meaning: &AlertEffect| matches!(meaning, AlertEffect::Watch { subject, .. } if subject == "certificate/1");
        assert!(all.iter().any(ends) && all.iter().any(forgets) && all.iter().any(watches), "{all:?}");
    }

    #[test]
    fn endpoint_conditions_are_raised_and_resolved() {
        for (condition, kind) in [
            (Condition::Mismatch, "endpoint.mismatch"),
            (Condition::Untrusted, "endpoint.untrusted"),
            (Condition::Weak, "endpoint.weak"),
            (Condition::Revoked, "endpoint.revoked"),
            (Condition::KeyNotProven, "endpoint.key_not_proven"),
            (Condition::Outdated, "endpoint.outdated"),
            (Condition::Silent, "endpoint.silent"),
            (Condition::NotYetValid, "endpoint.not_yet_valid"),
            (Condition::ChainEnds, "endpoint.chain_ends"),
            (Condition::Critical, "endpoint.critical"),
        ] {
            let (code, detail) = (String::new(), "why".to_owned());
            let trouble =
                EndpointTrouble { endpoint: endpoint(), condition, code, detail, ownership: ownership() };
            let began = of(&Event::EndpointTrouble(trouble));
            let [AlertEffect::Raise { kind: raised, title, attributes, .. }] = &began[..] else {
                panic!("{began:?}")
            };
            assert_eq!(*raised, kind);
            assert!(title.starts_with("a.example:443 "), "{title}");
            let actual =
                (attributes.team.as_deref(), attributes.issuer.as_deref(), attributes.detail.as_deref());
            assert_eq!(actual, (Some("t"), Some("CN=Issuer"), Some("why")));
            let (name, ownership) = ("a.example:443".to_owned(), Ownership::default());
            let over = of(&Event::EndpointTroubleOver(EndpointTroubleOver { name, condition, ownership }));
            assert!(
                matches!(&over[..], [AlertEffect::Resolve { kinds, .. }] if *kinds == [kind]),
                "{over:?}"
            );
        }
        let raised = |change, quiet| {
            let (detail, ownership) = (String::new(), ownership());
            let changed =
                EndpointCertificateChanged { endpoint: endpoint(), change, quiet, detail, ownership };
            match &of(&Event::EndpointCertificateChanged(changed))[..] {
                [AlertEffect::Raise { kind, .. }] => Some(*kind),
                _ => None,
            }
        };
        assert_eq!(raised(CertificateChange::New, false), Some("endpoint.new_certificate"));
        assert_eq!(raised(CertificateChange::Chain, false), Some("endpoint.chain_changed"));
        assert_eq!(raised(CertificateChange::Chain, true), None);
        assert_eq!(raised(CertificateChange::Renewed, false), None);
        let found = of(&Event::CertificateFound(CertificateFound {
            found: endpoint(),
            detail: String::new(),
            not_before_us: 1,
            not_after_us: 2,
            ownership: ownership(),
        }));
        assert!(matches!(&found[..], [AlertEffect::Watch { not_after_us: 2, .. }]), "{found:?}");
        let unserved = of(&Event::CertificateUnserved(CertificateUnserved {}));
        assert!(
            matches!(&unserved[..], [AlertEffect::Resolve { .. }, AlertEffect::Forget { .. }]),
            "{unserved:?}"
        );
        let much = of(&Event::WatchFinished(run(WatchCounts { untold: 7, ..WatchCounts::default() })));
        assert!(
            matches!(&much[1], AlertEffect::Raise { kind: "watch.untold", title, .. } if title.contains('7'))
        );
        let why = vec!["aws/1: denied".to_owned(), "gcp/2: denied".to_owned()];
        let counts = WatchCounts { not_listed: 2, not_listed_first: why, ..WatchCounts::default() };
        let part = of(&Event::WatchFinished(run(counts)));
        let [
            _,
            AlertEffect::Resolve { kinds: ["watch.untold"], .. },
            AlertEffect::Raise { kind, attributes, .. },
        ] = &part[..]
        else {
            panic!("{part:?}")
        };
        assert_eq!(*kind, "watch.incomplete");
        assert_eq!(attributes.detail.as_deref(), Some("aws/1: denied; gcp/2: denied"));
    }

    #[test]
    fn issuance_resolves_alerts_and_starts_an_expiry_watch() {
        let version = IssuedVersion {
            certificate: web(),
            run: Run::default(),
            serial: String::new(),
            fingerprint: fingerprint(),
        };
        let all = of(&Event::CertificateIssued(CertificateIssued::Version(Box::new(version))));
        assert!(
            matches!(&all[1], AlertEffect::Resolve { kinds, .. } if kinds.contains(&"certificate.expiring"))
        );
        let AlertEffect::Watch { not_before_us: 1, not_after_us: 1_000_000, attributes, .. } = &all[2] else {
            panic!("{all:?}")
        };
        assert_eq!(attributes.team.as_deref(), Some("t"));
    }

    #[test]
    fn newer_version_keeps_alerts_about_the_served_one_open() {
        let certificate =
            ManagedCertificate { served_not_before_us: Some(1), served_not_after_us: Some(500), ..web() };
        let (run, serial) = (Run::default(), String::new());
        let version =
            IssuedVersion { certificate: certificate.clone(), run, serial, fingerprint: fingerprint() };
        let issued = of(&Event::CertificateIssued(CertificateIssued::Version(Box::new(version))));
        let [AlertEffect::Resolve { kinds, .. }] = &issued[..] else { panic!("{issued:?}") };
        assert!(!kinds.contains(&"certificate.expiring") && !kinds.contains(&"certificate.not_deployed"));
        let fingerprint = Some(fingerprint());
        let served = of(&Event::CertificateServed(CertificateServed { certificate, fingerprint }));
        assert!(matches!(
            &served[..],
            [
                AlertEffect::Resolve { kinds: ["certificate.expiring"], .. },
                AlertEffect::Watch { not_before_us: 1, not_after_us: 500, .. },
            ]
        ));
    }

    #[test]
    fn ca_events_of_unmanaged_certificates_raise_no_alert() {
        let issued = IssuedByAuthority {
            ca: Uuid::nil(),
            profile: "default".to_owned(),
            source: "acme".to_owned(),
            requester: String::new(),
            sha256: fingerprint(),
            not_after: 2,
        };
        assert_eq!(of(&Event::CertificateIssued(CertificateIssued::ByAuthority(issued))), []);
        let revoked = RevokedByAuthority { action: Uuid::nil(), reason: String::new(), count: 1 };
        assert_eq!(of(&Event::CertificateRevoked(CertificateRevoked::ByAuthority(revoked))), []);
    }

    #[test]
    fn failed_watch_alert_is_resolved_on_finish_or_removal() {
        let error = Some("the database is full".to_owned());
        let name = "edge".to_owned();
        let failed = of(&Event::WatchFailed(WatchRun { name: name.clone(), error, ..WatchRun::default() }));
        let [AlertEffect::Raise { kind: "watch.failed", title, attributes, .. }] = &failed[..] else {
            panic!("{failed:?}")
        };
        assert!(title.contains("edge") && attributes.detail.as_deref() == Some("the database is full"));
        let finished = Event::WatchFinished(run(WatchCounts::default()));
        for over in [finished, Event::WatchRemoved(WatchRemoved { name })] {
            let all = of(&over);
            let ended = all.iter().flat_map(|one| match one {
                AlertEffect::Resolve { kinds, .. } => *kinds,
                other => panic!("{other:?}"),
            });
            assert_eq!(ended.collect::<BTreeSet<_>>(), WATCH_TROUBLE.iter().collect());
        }
    }

    #[test]
    fn ct_monitor_events_are_raised_and_resolved() {
        let issuance = CtIssuance {
            name: Some("example.com".to_owned()),
            issuer: "O=Evil CA".to_owned(),
            detail: "a.example.com".to_owned(),
            ..CtIssuance::default()
        };
        let decision = CtIssuanceDecision { detail: "ours".to_owned() };
        let expected = Event::CtIssuanceExpected(CtIssuanceExpected::Decided(decision.clone()));
        let acknowledged = Event::CtIssuanceAcknowledged(decision);
        let inconsistent = |alarm| {
            let (name, operator, detail) = ("Log".to_owned(), String::new(), String::new());
            Event::CtLogInconsistent(CtLogInconsistent { name, operator, alarm, detail })
        };
        let consistent = Event::CtLogConsistent(CtLogConsistent::Forgotten(CtForgotten {}));
        let behind = Event::CtBehind(CtLag { name: "crt.sh".to_owned(), detail: String::new() });
        let caught_up = Event::CtCaughtUp(CtLagEnded::Forgotten(CtForgotten {}));
        for (event, kind, severity, over) in [
            (
                Event::CtUnexpectedIssuance(issuance),
                "ct.unexpected_issuance",
                Severity::High,
                vec![expected, acknowledged],
            ),
            (
                inconsistent(CtLogAlarm::Forked),
                "ct.log_inconsistent",
                Severity::Critical,
                vec![consistent.clone()],
            ),
            (inconsistent(CtLogAlarm::WrongTile), "ct.log_inconsistent", Severity::High, vec![consistent]),
            (behind, "ct.behind", Severity::Medium, vec![caught_up]),
        ] {
            let raised = of(&event);
            let [AlertEffect::Raise { kind: actual, severity: weight, title, .. }] = &raised[..] else {
                panic!("{raised:?}")
            };
            assert_eq!((*actual, *weight), (kind, severity), "{title}");
            for over in over {
                let all = of(&over);
                assert!(
                    matches!(&all[..], [AlertEffect::Resolve { kinds, .. }] if kinds.contains(&kind)),
                    "{all:?}"
                );
            }
        }
    }

    #[test]
    fn drift_alert_is_raised_and_resolved() {
        type Kind = fn(Drift) -> Event;
        let kinds: [(&str, Severity, Kind, Kind); 4] = [
            ("drift.scan_slow", Severity::Medium, Event::DriftScanSlow, Event::DriftScanSlowOver),
            (
                "drift.provider_errors",
                Severity::High,
                Event::DriftProviderErrors,
                Event::DriftProviderErrorsOver,
            ),
            ("drift.database_pool", Severity::High, Event::DriftDatabasePool, Event::DriftDatabasePoolOver),
            ("drift.tasks", Severity::High, Event::DriftTasks, Event::DriftTasksOver),
        ];
        for (kind, severity, began, over) in kinds {
            let (name, detail) = ("tasks".to_owned(), "210, and 40 before".to_owned());
            let series = Drift { name, detail, ..Drift::default() };
            let began = of(&began(series.clone()));
            let [AlertEffect::Raise { kind: raised, severity: weight, title, attributes, .. }] = &began[..]
            else {
                panic!("{began:?}")
            };
            assert_eq!((*raised, *weight), (kind, severity));
            assert!(title.starts_with("tasks: ") && attributes.detail.is_some(), "{title}");
            let over = of(&over(series));
            assert!(
                matches!(&over[..], [AlertEffect::Resolve { kinds, .. }] if *kinds == [kind]),
                "{over:?}"
            );
        }
    }

    #[test]
    fn agent_alert_title_contains_the_agent_name() {
        let all = of(&Event::AgentOffline(AgentContact { name: "host".to_owned() }));
        assert!(matches!(&all[..], [AlertEffect::Raise { title, .. }] if title == "agent host is offline"));
    }
}
