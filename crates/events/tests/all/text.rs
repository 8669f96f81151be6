//! The stored text of every kind. Databases contain these texts and programs read them from the API, so they must never change.

use std::collections::{BTreeMap, BTreeSet};

use events::*;
use uuid::Uuid;
use x509::Fingerprint;

fn id(digit: u128) -> Uuid {
    Uuid::from_u128(digit * 0x1111_1111_1111_1111_1111_1111_1111_1111)
}

fn sha256() -> Fingerprint {
    Fingerprint::from_bytes([0xab; 32])
}

fn tags() -> BTreeMap<String, String> {
    BTreeMap::from([("cost".to_owned(), "7".to_owned())])
}

fn certificate() -> ManagedCertificate {
    ManagedCertificate {
        name: "web".to_owned(),
        profile: "default".to_owned(),
        issuer: "internal".to_owned(),
        owner: Some("ann".to_owned()),
        team: None,
        environment: Some("production".to_owned()),
        tags: tags(),
        not_before_us: Some(1),
        not_after_us: Some(2),
        served_not_before_us: None,
        served_not_after_us: None,
    }
}

fn served_certificate() -> ManagedCertificate {
    ManagedCertificate { served_not_before_us: Some(0), served_not_after_us: Some(1), ..certificate() }
}

fn new_certificate() -> ManagedCertificate {
    let (name, profile) = ("web".to_owned(), "default".to_owned());
    ManagedCertificate { name, profile, issuer: "internal".to_owned(), ..ManagedCertificate::default() }
}

fn run() -> Run {
    Run { job: id(1), reason: "planned".to_owned(), requested_by: "user:ann".to_owned(), attempts: 3 }
}

fn of_run() -> CertificateRun {
    CertificateRun { certificate: certificate(), run: run() }
}

fn deployment(outcome: DeploymentOutcome) -> Deployment {
    Deployment { target: Some(id(2)), outcome }
}

fn revoked() -> RevokedByAuthority {
    RevokedByAuthority { action: id(3), reason: "superseded".to_owned(), count: 1 }
}

fn revoked_version(origin: RevocationOrigin) -> CertificateRevoked {
    CertificateRevoked::Version(Box::new(RevokedVersion {
        certificate: certificate(),
        origin,
        reason: "superseded".to_owned(),
        requested_by: "user:ann".to_owned(),
    }))
}

fn seen(name: &str) -> EndpointCertificate {
    EndpointCertificate {
        name: name.to_owned(),
        watch: "edge".to_owned(),
        group: String::new(),
        issuer: "CN=Issuer".to_owned(),
        certificate: sha256(),
        certificate_name: "www.example.org".to_owned(),
    }
}

fn nobody() -> Ownership {
    Ownership::default()
}

fn owned() -> Ownership {
    Ownership {
        team: Some("web".to_owned()),
        owner: Some("ann".to_owned()),
        environment: Some("production".to_owned()),
        tags: tags(),
    }
}

fn issuance() -> CtIssuance {
    CtIssuance {
        name: Some("example.org".to_owned()),
        issuer: "O=Evil CA".to_owned(),
        serial: "0a".to_owned(),
        names: vec!["www.example.org".to_owned()],
        source: "crt.sh".to_owned(),
        detail: "www.example.org: it cannot be read".to_owned(),
    }
}

fn lag() -> CtLag {
    CtLag { name: "crt.sh".to_owned(), detail: "1 of 2 domains".to_owned() }
}

fn drift() -> Drift {
    Drift {
        name: "tasks".to_owned(),
        unit: "tasks".to_owned(),
        value: Some(210.0),
        baseline: Some(40.5),
        ratio: Some(5.25),
        detail: "210".to_owned(),
    }
}

fn settled() -> Drift {
    Drift { value: None, baseline: None, ratio: None, ..drift() }
}

fn counts() -> WatchCounts {
    WatchCounts {
        endpoints: 9,
        answered: 8,
        changed: 7,
        new_certificates: 6,
        worst_findings: BTreeMap::from([("high".to_owned(), 5)]),
        untold: 4,
        parts: 3,
        not_listed: 2,
        not_listed_first: vec!["aws/1: denied".to_owned()],
        not_read_first: Vec::new(),
    }
}

fn watch() -> WatchRun {
    WatchRun {
        name: "edge".to_owned(),
        group: "dc".to_owned(),
        scan: Some(id(4)),
        error: None,
        counts: Some(counts()),
    }
}

fn written() -> CredentialChange {
    CredentialChange {
        name: "/a".to_owned(),
        by: "user:ann".to_owned(),
        kind: Some("password".to_owned()),
        version: Some(id(5)),
    }
}

fn changed() -> CredentialChange {
    CredentialChange { kind: None, version: None, ..written() }
}

fn golden() -> Vec<(Event, &'static str, &'static str)> {
    vec![
        (
            Event::CertificateCreated(CertificateCreated {
                certificate: new_certificate(),
                actor: "user:ann".to_owned(),
            }),
            "certificate.created",
            r#"{"actor":"user:ann","environment":null,"issuer":"internal","name":"web","not_after_us":null,"not_before_us":null,"owner":null,"profile":"default","tags":{},"team":null}"#,
        ),
        (
            Event::CertificateChanged(certificate()),
            "certificate.changed",
            r#"{"environment":"production","issuer":"internal","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateClaimed(CertificateClaimed {
                certificate: certificate(),
                fingerprint: sha256(),
            }),
            "certificate.claimed",
            r#"{"environment":"production","fingerprint":"abababababababababababababababababababababababababababababababab","issuer":"internal","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateArchived(certificate()),
            "certificate.archived",
            r#"{"environment":"production","issuer":"internal","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateRestored(certificate()),
            "certificate.restored",
            r#"{"environment":"production","issuer":"internal","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateApprovalNeeded(of_run()),
            "certificate.approval_needed",
            r#"{"attempts":3,"environment":"production","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","reason":"planned","requested_by":"user:ann","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateRejected(CertificateRejected {
                certificate: certificate(),
                approval: id(2),
                job: id(1),
                requested_by: "user:ann".to_owned(),
                note: Some("no".to_owned()),
            }),
            "certificate.rejected",
            r#"{"approval":"22222222-2222-2222-2222-222222222222","environment":"production","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"note":"no","owner":"ann","profile":"default","requested_by":"user:ann","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateCsrNeeded(of_run()),
            "certificate.csr_needed",
            r#"{"attempts":3,"environment":"production","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","reason":"planned","requested_by":"user:ann","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateCancelled(of_run()),
            "certificate.cancelled",
            r#"{"attempts":3,"environment":"production","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","reason":"planned","requested_by":"user:ann","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateFailed(CertificateFailed {
                certificate: certificate(),
                run: run(),
                error: None,
                deployment: None,
            }),
            "certificate.failed",
            r#"{"attempts":3,"environment":"production","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","reason":"planned","requested_by":"user:ann","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateFailed(CertificateFailed {
                certificate: certificate(),
                run: run(),
                error: Some("no".to_owned()),
                deployment: Some(deployment(DeploymentOutcome::RolledBack)),
            }),
            "certificate.failed",
            r#"{"attempts":3,"environment":"production","error":"no","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"outcome":"rolled_back","owner":"ann","profile":"default","reason":"planned","requested_by":"user:ann","tags":{"cost":"7"},"target":"22222222-2222-2222-2222-222222222222","team":null}"#,
        ),
        (
            Event::CertificateDeployed(CertificateDeployed {
                certificate: certificate(),
                run: run(),
                deployment: deployment(DeploymentOutcome::Deployed),
            }),
            "certificate.deployed",
            r#"{"attempts":3,"environment":"production","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"outcome":"deployed","owner":"ann","profile":"default","reason":"planned","requested_by":"user:ann","tags":{"cost":"7"},"target":"22222222-2222-2222-2222-222222222222","team":null}"#,
        ),
        (
            Event::CertificateDeployed(CertificateDeployed {
                certificate: certificate(),
                run: run(),
                deployment: Deployment { target: None, outcome: DeploymentOutcome::Unchanged },
            }),
            "certificate.deployed",
            r#"{"attempts":3,"environment":"production","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"outcome":"unchanged","owner":"ann","profile":"default","reason":"planned","requested_by":"user:ann","tags":{"cost":"7"},"target":null,"team":null}"#,
        ),
        (
            Event::CertificateIssued(CertificateIssued::Version(Box::new(IssuedVersion {
                certificate: certificate(),
                run: run(),
                serial: "0a".to_owned(),
                fingerprint: sha256(),
            }))),
            "certificate.issued",
            r#"{"attempts":3,"environment":"production","fingerprint":"abababababababababababababababababababababababababababababababab","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","reason":"planned","requested_by":"user:ann","serial":"0a","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateIssued(CertificateIssued::ByAuthority(IssuedByAuthority {
                ca: id(6),
                profile: "default".to_owned(),
                source: "acme".to_owned(),
                requester: "user:ann".to_owned(),
                sha256: sha256(),
                not_after: 2,
            })),
            "certificate.issued",
            r#"{"ca":"66666666-6666-6666-6666-666666666666","not_after":2,"profile":"default","requester":"user:ann","sha256":"abababababababababababababababababababababababababababababababab","source":"acme"}"#,
        ),
        (
            Event::CertificateRevoked(revoked_version(RevocationOrigin::Job(id(1)))),
            "certificate.revoked",
            r#"{"environment":"production","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","reason":"superseded","requested_by":"user:ann","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateRevoked(revoked_version(RevocationOrigin::Action(id(3)))),
            "certificate.revoked",
            r#"{"action":"33333333-3333-3333-3333-333333333333","environment":"production","issuer":"internal","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","reason":"superseded","requested_by":"user:ann","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateRevoked(CertificateRevoked::ByAuthority(revoked())),
            "certificate.revoked",
            r#"{"action":"33333333-3333-3333-3333-333333333333","count":1,"reason":"superseded"}"#,
        ),
        (
            Event::CertificateRevocationFailed(CertificateRevocationFailed {
                certificate: certificate(),
                job: id(1),
                error: "no".to_owned(),
                attempts: 3,
            }),
            "certificate.revoke_failed",
            r#"{"attempts":3,"environment":"production","error":"no","issuer":"internal","job":"11111111-1111-1111-1111-111111111111","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificatesRevoked(RevokedByAuthority { count: 2_000, ..revoked() }),
            "certificates.revoked",
            r#"{"action":"33333333-3333-3333-3333-333333333333","count":2000,"reason":"superseded"}"#,
        ),
        (
            Event::CertificateFound(CertificateFound {
                found: seen("www.example.org"),
                detail: "served at www.example.org:443".to_owned(),
                not_before_us: 1,
                not_after_us: 2,
                ownership: owned(),
            }),
            "certificate.found",
            r#"{"certificate":"abababababababababababababababababababababababababababababababab","certificate_name":"www.example.org","detail":"served at www.example.org:443","environment":"production","group":"","issuer":"CN=Issuer","name":"www.example.org","not_after_us":2,"not_before_us":1,"owner":"ann","tags":{"cost":"7"},"team":"web","watch":"edge"}"#,
        ),
        (
            Event::CertificateFound(CertificateFound {
                found: seen("www.example.org"),
                detail: "served at www.example.org:443".to_owned(),
                not_before_us: 1,
                not_after_us: 2,
                ownership: nobody(),
            }),
            "certificate.found",
            r#"{"certificate":"abababababababababababababababababababababababababababababababab","certificate_name":"www.example.org","detail":"served at www.example.org:443","group":"","issuer":"CN=Issuer","name":"www.example.org","not_after_us":2,"not_before_us":1,"watch":"edge"}"#,
        ),
        (
            Event::CertificateServed(CertificateServed {
                certificate: served_certificate(),
                fingerprint: Some(sha256()),
            }),
            "certificate.served",
            r#"{"environment":"production","fingerprint":"abababababababababababababababababababababababababababababababab","issuer":"internal","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","served_not_after_us":1,"served_not_before_us":0,"tags":{"cost":"7"},"team":null}"#,
        ),
        (
            Event::CertificateDeploymentLate(CertificateDeploymentLate {
                certificate: certificate(),
                since_us: 1,
                error: Some("nginx -t failed".to_owned()),
            }),
            "certificate.deployment_late",
            r#"{"environment":"production","error":"nginx -t failed","issuer":"internal","name":"web","not_after_us":2,"not_before_us":1,"owner":"ann","profile":"default","since_us":1,"tags":{"cost":"7"},"team":null}"#,
        ),
        (Event::CertificateUnserved(CertificateUnserved {}), "certificate.unserved", "{}"),
        (Event::CertificateDismissed(CertificateDismissed {}), "certificate.dismissed", "{}"),
        (Event::ProfileChanged(ProfileChanged {}), "profile.changed", "{}"),
        (
            Event::EnrolmentWaiting(EnrolmentWaiting {
                profile: "default".to_owned(),
                requester: "est:ann".to_owned(),
            }),
            "enrolment.waiting",
            r#"{"profile":"default","requester":"est:ann"}"#,
        ),
        (
            Event::EnrolmentDecided(EnrolmentDecided { approved: true }),
            "enrolment.decided",
            r#"{"approved":true}"#,
        ),
        (
            Event::ApprovalGiven(ApprovalGiven { approver: "user:ann".to_owned(), given: 1, needed: 2 }),
            "approval.given",
            r#"{"approver":"user:ann","given":1,"needed":2}"#,
        ),
        (
            Event::ChangeWaiting(ChangeWaiting {
                action: "profile.put".to_owned(),
                object: "profile/vip".to_owned(),
                requester: "user:ann".to_owned(),
                given: 0,
                needed: 2,
            }),
            "change.waiting",
            r#"{"action":"profile.put","given":0,"needed":2,"object":"profile/vip","requester":"user:ann"}"#,
        ),
        (
            Event::ChangeDecided(ChangeDecided { state: "applied".to_owned() }),
            "change.decided",
            r#"{"state":"applied"}"#,
        ),
        (
            Event::AcmeAccountCreated(AcmeAccountCreated {
                address: "192.0.2.1".to_owned(),
                profile: "default".to_owned(),
                contact: vec!["mailto:a@example.org".to_owned()],
                external_key: None,
            }),
            "acme_account.created",
            r#"{"address":"192.0.2.1","contact":["mailto:a@example.org"],"external_key":null,"profile":"default"}"#,
        ),
        (
            Event::AcmeAccountUpdated(AcmeAccountChanged { contact: Some(Vec::new()) }),
            "acme_account.updated",
            r#"{"contact":[]}"#,
        ),
        (
            Event::AcmeAccountDeactivated(AcmeAccountChanged { contact: None }),
            "acme_account.deactivated",
            r#"{"contact":null}"#,
        ),
        (
            Event::AcmeAccountKeyChanged(AcmeAccountKeyChanged { new_thumbprint: "abc".to_owned() }),
            "acme_account.key_changed",
            r#"{"new_thumbprint":"abc"}"#,
        ),
        (Event::AcmeAccountRevoked(AcmeAccountRevoked {}), "acme_account.revoked", "{}"),
        (
            Event::AcmeOrderCompleted(AcmeOrderCompleted { certificate: id(7), account: id(8) }),
            "acme_order.completed",
            r#"{"account":"88888888-8888-8888-8888-888888888888","certificate":"77777777-7777-7777-7777-777777777777"}"#,
        ),
        (
            Event::AcmeOrderRefused(AcmeOrderRefused { account: id(8) }),
            "acme_order.refused",
            r#"{"account":"88888888-8888-8888-8888-888888888888"}"#,
        ),
        (
            Event::AgentOffline(AgentContact { name: "host".to_owned() }),
            "agent.offline",
            r#"{"name":"host"}"#,
        ),
        (Event::AgentOnline(AgentContact { name: "host".to_owned() }), "agent.online", r#"{"name":"host"}"#),
        (
            Event::IssuerUnhealthy(IssuerCondition { name: "le".to_owned(), detail: Some("no".to_owned()) }),
            "issuer.unhealthy",
            r#"{"detail":"no","name":"le"}"#,
        ),
        (
            Event::IssuerHealthy(IssuerCondition { name: "le".to_owned(), detail: None }),
            "issuer.healthy",
            r#"{"detail":null,"name":"le"}"#,
        ),
        (
            Event::AuditBroken(AuditBroken { detail: "shard 1".to_owned() }),
            "audit.broken",
            r#"{"detail":"shard 1"}"#,
        ),
        (
            Event::AuditWitnessFailing(AuditWitness {
                name: "file".to_owned(),
                error: Some("disk full".to_owned()),
            }),
            "audit.witness_failing",
            r#"{"error":"disk full","name":"file"}"#,
        ),
        (
            Event::AuditWitnessRecovered(AuditWitness { name: "file".to_owned(), error: None }),
            "audit.witness_recovered",
            r#"{"error":null,"name":"file"}"#,
        ),
        (
            Event::EndpointTrouble(EndpointTrouble {
                endpoint: seen("www.example.org:443"),
                condition: Condition::KeyNotProven,
                code: "endpoint.key-not-proven".to_owned(),
                detail: "not proven".to_owned(),
                ownership: owned(),
            }),
            "endpoint.trouble",
            r#"{"certificate":"abababababababababababababababababababababababababababababababab","certificate_name":"www.example.org","code":"endpoint.key-not-proven","condition":"key_not_proven","detail":"not proven","environment":"production","group":"","issuer":"CN=Issuer","name":"www.example.org:443","owner":"ann","tags":{"cost":"7"},"team":"web","watch":"edge"}"#,
        ),
        (
            Event::EndpointTroubleOver(EndpointTroubleOver {
                name: "www.example.org:443".to_owned(),
                condition: Condition::Weak,
                ownership: nobody(),
            }),
            "endpoint.trouble_over",
            r#"{"condition":"weak","name":"www.example.org:443"}"#,
        ),
        (
            Event::EndpointTroubleOver(EndpointTroubleOver {
                name: "www.example.org:443".to_owned(),
                condition: Condition::Mismatch,
                ownership: owned(),
            }),
            "endpoint.trouble_over",
            r#"{"condition":"mismatch","environment":"production","name":"www.example.org:443","owner":"ann","tags":{"cost":"7"},"team":"web"}"#,
        ),
        (
            Event::EndpointCertificateChanged(EndpointCertificateChanged {
                endpoint: seen("www.example.org:443"),
                change: CertificateChange::Chain,
                quiet: false,
                detail: "x of y".to_owned(),
                ownership: nobody(),
            }),
            "endpoint.certificate_changed",
            r#"{"certificate":"abababababababababababababababababababababababababababababababab","certificate_name":"www.example.org","change":"chain","detail":"x of y","group":"","issuer":"CN=Issuer","name":"www.example.org:443","quiet":false,"watch":"edge"}"#,
        ),
        (
            Event::WatchFinished(watch()),
            "watch.finished",
            r#"{"counts":{"answered":8,"changed":7,"endpoints":9,"new_certificates":6,"not_listed":2,"not_listed_first":["aws/1: denied"],"not_read_first":[],"parts":3,"untold":4,"worst_findings":{"high":5}},"error":null,"group":"dc","name":"edge","scan":"44444444-4444-4444-4444-444444444444"}"#,
        ),
        (
            Event::WatchFailed(WatchRun {
                scan: None,
                error: Some("no".to_owned()),
                counts: None,
                ..watch()
            }),
            "watch.failed",
            r#"{"counts":null,"error":"no","group":"dc","name":"edge","scan":null}"#,
        ),
        (
            Event::WatchRemoved(WatchRemoved { name: "edge".to_owned() }),
            "watch.removed",
            r#"{"name":"edge"}"#,
        ),
        (
            Event::CtUnexpectedIssuance(issuance()),
            "ct.unexpected_issuance",
            r#"{"detail":"www.example.org: it cannot be read","issuer":"O=Evil CA","name":"example.org","names":["www.example.org"],"serial":"0a","source":"crt.sh"}"#,
        ),
        (
            Event::CtIssuanceExpected(CtIssuanceExpected::Known(issuance())),
            "ct.issuance_expected",
            r#"{"detail":"www.example.org: it cannot be read","issuer":"O=Evil CA","name":"example.org","names":["www.example.org"],"serial":"0a","source":"crt.sh"}"#,
        ),
        (
            Event::CtIssuanceExpected(CtIssuanceExpected::Decided(CtIssuanceDecision {
                detail: "ours".to_owned(),
            })),
            "ct.issuance_expected",
            r#"{"detail":"ours"}"#,
        ),
        (
            Event::CtIssuanceAcknowledged(CtIssuanceDecision { detail: "seen".to_owned() }),
            "ct.issuance_acknowledged",
            r#"{"detail":"seen"}"#,
        ),
        (
            Event::CtLogInconsistent(CtLogInconsistent {
                name: "log".to_owned(),
                operator: "op".to_owned(),
                alarm: CtLogAlarm::RolledBack,
                detail: "back".to_owned(),
            }),
            "ct.log_inconsistent",
            r#"{"alarm":"rolled-back","detail":"back","name":"log","operator":"op"}"#,
        ),
        (
            Event::CtLogConsistent(CtLogConsistent::Recovered(CtLogRecovered {
                name: "log".to_owned(),
                operator: "op".to_owned(),
                alarm: None,
                detail: None,
            })),
            "ct.log_consistent",
            r#"{"alarm":null,"detail":null,"name":"log","operator":"op"}"#,
        ),
        (Event::CtLogConsistent(CtLogConsistent::Forgotten(CtForgotten {})), "ct.log_consistent", "{}"),
        (Event::CtBehind(lag()), "ct.behind", r#"{"detail":"1 of 2 domains","name":"crt.sh"}"#),
        (
            Event::CtCaughtUp(CtLagEnded::CaughtUp(lag())),
            "ct.caught_up",
            r#"{"detail":"1 of 2 domains","name":"crt.sh"}"#,
        ),
        (Event::CtCaughtUp(CtLagEnded::Forgotten(CtForgotten {})), "ct.caught_up", "{}"),
        (
            Event::DriftScanSlow(drift()),
            "drift.scan_slow",
            r#"{"baseline":40.5,"detail":"210","name":"tasks","ratio":5.25,"unit":"tasks","value":210.0}"#,
        ),
        (
            Event::DriftScanSlowOver(settled()),
            "drift.scan_slow_over",
            r#"{"baseline":null,"detail":"210","name":"tasks","ratio":null,"unit":"tasks","value":null}"#,
        ),
        (
            Event::DriftProviderErrors(drift()),
            "drift.provider_errors",
            r#"{"baseline":40.5,"detail":"210","name":"tasks","ratio":5.25,"unit":"tasks","value":210.0}"#,
        ),
        (
            Event::DriftProviderErrorsOver(drift()),
            "drift.provider_errors_over",
            r#"{"baseline":40.5,"detail":"210","name":"tasks","ratio":5.25,"unit":"tasks","value":210.0}"#,
        ),
        (
            Event::DriftDatabasePool(drift()),
            "drift.database_pool",
            r#"{"baseline":40.5,"detail":"210","name":"tasks","ratio":5.25,"unit":"tasks","value":210.0}"#,
        ),
        (
            Event::DriftDatabasePoolOver(drift()),
            "drift.database_pool_over",
            r#"{"baseline":40.5,"detail":"210","name":"tasks","ratio":5.25,"unit":"tasks","value":210.0}"#,
        ),
        (
            Event::DriftTasks(drift()),
            "drift.tasks",
            r#"{"baseline":40.5,"detail":"210","name":"tasks","ratio":5.25,"unit":"tasks","value":210.0}"#,
        ),
        (
            Event::DriftTasksOver(drift()),
            "drift.tasks_over",
            r#"{"baseline":40.5,"detail":"210","name":"tasks","ratio":5.25,"unit":"tasks","value":210.0}"#,
        ),
        (
            Event::CredentialChanged(written()),
            "credential.changed",
            r#"{"by":"user:ann","name":"/a","type":"password","version":"55555555-5555-5555-5555-555555555555"}"#,
        ),
        (Event::CredentialChanged(changed()), "credential.changed", r#"{"by":"user:ann","name":"/a"}"#),
        (Event::CredentialDeleted(changed()), "credential.deleted", r#"{"by":"user:ann","name":"/a"}"#),
        (
            Event::CredentialRotationFailed(CredentialRotationFailed {
                name: "/a".to_owned(),
                error: "no".to_owned(),
                again_at_us: 9,
            }),
            "credential.rotation_failed",
            r#"{"again_at_us":9,"error":"no","name":"/a"}"#,
        ),
        (
            Event::CredentialRotationRecovered(CredentialName { name: "/a".to_owned() }),
            "credential.rotation_recovered",
            r#"{"name":"/a"}"#,
        ),
        (
            Event::CredentialLeaseRevocationFailed(CredentialLeaseRevocation {
                name: "shop".to_owned(),
                error: Some("no".to_owned()),
            }),
            "credential.lease_revocation_failed",
            r#"{"error":"no","name":"shop"}"#,
        ),
        (
            Event::CredentialLeaseRevocationRecovered(CredentialLeaseRevocation {
                name: "shop".to_owned(),
                error: None,
            }),
            "credential.lease_revocation_recovered",
            r#"{"name":"shop"}"#,
        ),
    ]
}

#[test]
fn stored_text_of_every_event_kind_is_unchanged() {
    let mut kinds = BTreeSet::new();
    for (event, kind, text) in golden() {
        assert_eq!(event.kind(), kind);
        assert_eq!(event.body(), text, "{kind}");
        assert_eq!(Event::read(kind, text).unwrap(), Some(event), "{kind}");
        kinds.insert(kind);
    }
    assert_eq!(kinds, Event::KINDS.iter().copied().collect(), "every kind has a text here");
}

#[test]
fn unknown_event_kinds_are_ignored() {
    assert_eq!(Event::read("certificate.teleported", r#"{"to":"mars"}"#).unwrap(), None);
    assert_eq!(Event::read("", "").unwrap(), None);
}

#[test]
fn unknown_event_fields_are_ignored() {
    let read = Event::read("agent.offline", r#"{"name":"host","since":7}"#).unwrap();
    assert_eq!(read, Some(Event::AgentOffline(AgentContact { name: "host".to_owned() })));
}

#[test]
fn unreadable_event_bodies_are_reported_with_their_kind() {
    for body in ["", "[]", "7", "{}", r#"{"name":7}"#] {
        let error = Event::read("agent.offline", body).unwrap_err().to_string();
        assert!(error.starts_with("cannot parse the body of the event agent.offline: "), "{error}");
    }
}

#[test]
fn event_feed_texts_are_unchanged() {
    use events::feed::{CREDENTIAL_CHANGED, CredentialNews, LAGGED, Lagged, PLACE, READY, Ready};
    assert_eq!(CREDENTIAL_CHANGED, Event::CredentialChanged(changed()).kind());
    assert_eq!([READY, LAGGED, PLACE], ["ready", "lagged", "place"]);
    let text = |value: serde_json::Result<String>| value.unwrap();
    assert_eq!(text(serde_json::to_string(&Ready { resumed: true })), r#"{"resumed":true}"#);
    assert_eq!(text(serde_json::to_string(&Lagged { missed: 7 })), r#"{"missed":7}"#);
    let (at, name) = ("2026-11-21T08:42:32Z".to_owned(), "/a".to_owned());
    let news = CredentialNews { at, name: name.clone(), kind: None, version: None };
    let wanted = r#"{"at":"2026-11-21T08:42:32Z","name":"/a","type":null,"version":null}"#;
    assert_eq!(text(serde_json::to_string(&news)), wanted);
    assert_eq!(text(serde_json::to_string(&CredentialName { name })), r#"{"name":"/a"}"#);
}
