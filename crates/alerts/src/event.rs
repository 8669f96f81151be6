//! What an event of the outbox means for alerts.

use serde_json::Value;
use store::OutboxRow;

use crate::rule::Attributes;
use crate::severity::Severity;

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EventMeaning {
    /// Tell people.
    Raise { kind: &'static str, subject: String, severity: Severity, title: String, attributes: Attributes },
    /// What was told of is over.
    Resolve { subject: String, kinds: &'static [&'static str] },
    /// A certificate is in use now; its end is to be watched.
    Watch { subject: String, not_before_us: i64, not_after_us: i64, attributes: Attributes },
    /// A certificate's end is of no more interest.
    Forget { subject: String },
}

/// What runs can leave behind.
const RUN_TROUBLE: &[&str] = &["certificate.failed", "certificate.approval_needed", "certificate.expiring"];

/// What runs of a watch can leave behind.
const WATCH_TROUBLE: &[&str] = &["watch.failed", "watch.untold", "watch.incomplete"];

/// What an endpoint is in: the kind of the alert, how bad it is, and what is said of the endpoint.
fn trouble(body: &Value) -> Option<(&'static [&'static str], Severity, &'static str)> {
    Some(match body["condition"].as_str()? {
        "mismatch" => {
            (&["endpoint.mismatch"], Severity::High, "shows a certificate that is for another name")
        }
        "untrusted" => (&["endpoint.untrusted"], Severity::High, "shows a chain that clients do not trust"),
        "weak" => {
            (&["endpoint.weak"], Severity::Medium, "uses a key, signature or protocol that is too weak")
        }
        "revoked" => (&["endpoint.revoked"], Severity::Critical, "serves a certificate that is revoked"),
        "key_not_proven" => {
            (&["endpoint.key_not_proven"], Severity::Critical, "did not prove that it has its private key")
        }
        "outdated" => {
            (&["endpoint.outdated"], Severity::High, "serves a version that was replaced over a day ago")
        }
        _ => return None,
    })
}

/// How the scanner is not what it was: the kind of the alert, how bad it is, and what is said of the series.
fn drift(event: &str) -> Option<(&'static [&'static str], Severity, &'static str)> {
    Some(match event.strip_suffix("_over").unwrap_or(event) {
        "drift.scan_slow" => {
            (&["drift.scan_slow"], Severity::Medium, "scans take a quarter longer than over the last week")
        }
        "drift.provider_errors" => {
            (&["drift.provider_errors"], Severity::High, "over one call in a hundred fails")
        }
        "drift.database_pool" => {
            (&["drift.database_pool"], Severity::High, "over 80 % of the database connections are taken")
        }
        "drift.tasks" => {
            (&["drift.tasks"], Severity::High, "a process has five times its tasks of the last week")
        }
        _ => return None,
    })
}

/// What an event means; several things, or nothing.
pub(crate) fn meanings(event: &OutboxRow) -> Vec<EventMeaning> {
    let body: Value = serde_json::from_str(&event.body).unwrap_or_default();
    let attributes = attributes_of(&body);
    let subject = event.subject.clone();
    let name = attributes.name.clone().unwrap_or_else(|| subject.clone());
    let raise = |kind, severity, title: String| {
        vec![EventMeaning::Raise {
            kind,
            subject: subject.clone(),
            severity,
            title,
            attributes: attributes.clone(),
        }]
    };
    match event.kind.as_str() {
        "certificate.issued" => {
            let mut all = vec![EventMeaning::Resolve { subject: subject.clone(), kinds: RUN_TROUBLE }];
            all.extend(watch(&body, &subject, &attributes));
            all
        }
        "certificate.claimed" | "certificate.restored" => {
            watch(&body, &subject, &attributes).into_iter().collect()
        }
        // Found by a watch, and not managed here.
        "certificate.found" => watch(&body, &subject, &attributes).into_iter().collect(),
        "certificate.unserved" | "certificate.dismissed" => vec![
            EventMeaning::Resolve { subject: subject.clone(), kinds: &["certificate.expiring"] },
            EventMeaning::Forget { subject },
        ],
        "certificate.deployed" => {
            vec![EventMeaning::Resolve { subject, kinds: &["certificate.failed"] }]
        }
        "certificate.failed" => {
            raise("certificate.failed", Severity::High, format!("{name}: the last run failed"))
        }
        "certificate.approval_needed" => {
            raise("certificate.approval_needed", Severity::Low, format!("{name} waits for approval"))
        }
        "certificate.rejected" | "certificate.cancelled" => {
            vec![EventMeaning::Resolve { subject, kinds: &["certificate.approval_needed"] }]
        }
        // The authority tells of every certificate; people are told of those they manage, which have names.
        "certificate.revoked" if attributes.name.is_some() => {
            let mut all = raise("certificate.revoked", Severity::High, format!("{name} was revoked"));
            all.push(EventMeaning::Forget { subject });
            all
        }
        "certificate.archived" => vec![
            EventMeaning::Resolve { subject: subject.clone(), kinds: RUN_TROUBLE },
            EventMeaning::Resolve { subject: subject.clone(), kinds: &["certificate.revoked"] },
            EventMeaning::Forget { subject },
        ],
        "agent.offline" => raise("agent.offline", Severity::High, format!("agent {name} is silent")),
        "agent.online" => vec![EventMeaning::Resolve { subject, kinds: &["agent.offline"] }],
        "issuer.unhealthy" => {
            raise("issuer.unhealthy", Severity::High, format!("issuer {name} does not issue"))
        }
        "issuer.healthy" => vec![EventMeaning::Resolve { subject, kinds: &["issuer.unhealthy"] }],
        "endpoint.trouble" => match trouble(&body) {
            Some((kinds, severity, says)) => raise(kinds[0], severity, format!("{name} {says}")),
            None => Vec::new(),
        },
        "endpoint.trouble_over" => match trouble(&body) {
            Some((kinds, ..)) => vec![EventMeaning::Resolve { subject, kinds }],
            None => Vec::new(),
        },
        "endpoint.certificate_changed" if body["quiet"] != true => match body["change"].as_str() {
            Some("new") => raise(
                "endpoint.new_certificate",
                Severity::Low,
                format!("{name} is new and shows a certificate"),
            ),
            Some("chain") => raise(
                "endpoint.chain_changed",
                Severity::Medium,
                format!("{name} shows a certificate of another chain"),
            ),
            _ => Vec::new(),
        },
        "ct.unexpected_issuance" => {
            let issuer = attributes.issuer.as_deref().unwrap_or("an unreadable issuer");
            let title = format!("{name}: nobody asked for a certificate of {issuer}");
            raise("ct.unexpected_issuance", Severity::High, title)
        }
        "ct.issuance_expected" | "ct.issuance_acknowledged" => {
            vec![EventMeaning::Resolve { subject, kinds: &["ct.unexpected_issuance"] }]
        }
        "ct.log_inconsistent" => {
            // Two signed notes that cannot both be true are proof; the rest may be a broken cache.
            let proven = matches!(body.get("alarm").and_then(Value::as_str), Some("forked" | "rolled-back"));
            let severity = if proven { Severity::Critical } else { Severity::High };
            raise("ct.log_inconsistent", severity, format!("the CT log {name} is not what it was"))
        }
        "ct.log_consistent" => vec![EventMeaning::Resolve { subject, kinds: &["ct.log_inconsistent"] }],
        "ct.behind" => raise(
            "ct.behind",
            Severity::Medium,
            format!("{name} has told nothing of certificates for too long"),
        ),
        "ct.caught_up" => vec![EventMeaning::Resolve { subject, kinds: &["ct.behind"] }],
        "watch.failed" => {
            raise("watch.failed", Severity::Medium, format!("watch {name}: the last run failed"))
        }
        "watch.finished" => watch_finished(&subject, &name, &body, &attributes),
        "watch.removed" => vec![EventMeaning::Resolve { subject, kinds: WATCH_TROUBLE }],
        "credential.rotation_failed" => {
            raise("credential.rotation_failed", Severity::High, format!("{name} was not rotated"))
        }
        "credential.rotation_recovered" => {
            vec![EventMeaning::Resolve { subject, kinds: &["credential.rotation_failed"] }]
        }
        "audit.broken" => {
            raise("audit.broken", Severity::Critical, "the audit log was tampered with".to_owned())
        }
        kind => match drift(kind) {
            Some((kinds, ..)) if kind.ends_with("_over") => vec![EventMeaning::Resolve { subject, kinds }],
            Some((kinds, severity, says)) => raise(kinds[0], severity, format!("{name}: {says}")),
            None => Vec::new(),
        },
    }
}

/// What the end of a watch's run leaves to be said, and what it ends.
fn watch_finished(subject: &str, name: &str, body: &Value, attributes: &Attributes) -> Vec<EventMeaning> {
    let count = |what: &str| body["counts"][what].as_u64().unwrap_or(0);
    let (untold, not_listed) = (count("untold"), count("not_listed"));
    let ended = |kinds| EventMeaning::Resolve { subject: subject.to_owned(), kinds };
    let trouble = |kind, severity, title, detail| EventMeaning::Raise {
        kind,
        subject: subject.to_owned(),
        severity,
        title,
        attributes: Attributes { detail, ..attributes.clone() },
    };
    let much = if untold > 0 {
        let title = format!("watch {name} saw {untold} things more than it tells of at once");
        trouble("watch.untold", Severity::Medium, title, None)
    } else {
        ended(&["watch.untold"])
    };
    let part = if not_listed > 0 {
        let why = body["counts"]["not_listed_first"].as_array();
        let why: Vec<&str> = why.into_iter().flatten().filter_map(Value::as_str).collect();
        let title = format!("watch {name} could not list {not_listed} of its clouds, or not whole");
        trouble("watch.incomplete", Severity::High, title, Some(why.join("; ")))
    } else {
        ended(&["watch.incomplete"])
    };
    vec![ended(&["watch.failed"]), much, part]
}

/// The members that rules look at; what is of another kind is left out alone.
fn attributes_of(body: &Value) -> Attributes {
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let tags = body.get("tags").and_then(Value::as_object);
    Attributes {
        name: text("name"),
        owner: text("owner"),
        team: text("team"),
        environment: text("environment"),
        issuer: text("issuer"),
        profile: text("profile"),
        tags: tags
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        detail: text("detail").or_else(|| text("error")),
        not_after: None,
    }
}

/// The validity, as µs or RFC 3339.
fn watch(body: &Value, subject: &str, attributes: &Attributes) -> Option<EventMeaning> {
    let time = |name: &str| match body.get(name)? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse::<jiff::Timestamp>().ok().map(|at| at.as_microsecond()),
        _ => None,
    };
    let not_before_us = time("not_before").or_else(|| time("not_before_us"))?;
    let not_after_us = time("not_after").or_else(|| time("not_after_us"))?;
    Some(EventMeaning::Watch {
        subject: subject.to_owned(),
        not_before_us,
        not_after_us,
        attributes: attributes.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use store::OutboxPlace;

    fn event(kind: &str, body: &str) -> OutboxRow {
        OutboxRow {
            place: OutboxPlace::default(),
            at_us: 0,
            kind: kind.to_owned(),
            subject: "certificate/1".to_owned(),
            body: body.to_owned(),
        }
    }

    #[test]
    fn what_a_watch_saw_is_told_and_ends() {
        let of = |kind: &str, body: &str| meanings(&event(kind, body));
        for (condition, kind) in [
            ("mismatch", "endpoint.mismatch"),
            ("untrusted", "endpoint.untrusted"),
            ("weak", "endpoint.weak"),
            ("revoked", "endpoint.revoked"),
            ("key_not_proven", "endpoint.key_not_proven"),
            ("outdated", "endpoint.outdated"),
        ] {
            let body = format!(r#"{{"name":"a.example:443","condition":"{condition}"}}"#);
            let began = of("endpoint.trouble", &body);
            assert!(
                matches!(&began[..], [EventMeaning::Raise { kind: raised, .. }] if *raised == kind),
                "{began:?}"
            );
            let over = of("endpoint.trouble_over", &body);
            assert!(
                matches!(&over[..], [EventMeaning::Resolve { kinds, .. }] if *kinds == [kind]),
                "{over:?}"
            );
        }
        assert_eq!(of("endpoint.trouble", r#"{"condition":"unheard-of"}"#), []);
        let raised = |body: &str| match &of("endpoint.certificate_changed", body)[..] {
            [EventMeaning::Raise { kind, .. }] => Some(*kind),
            _ => None,
        };
        assert_eq!(raised(r#"{"change":"new","quiet":false}"#), Some("endpoint.new_certificate"));
        assert_eq!(raised(r#"{"change":"chain","quiet":false}"#), Some("endpoint.chain_changed"));
        assert_eq!(raised(r#"{"change":"chain","quiet":true}"#), None);
        assert_eq!(raised(r#"{"change":"renewed","quiet":false}"#), None);
        let found = of("certificate.found", r#"{"name":"a","not_before_us":1,"not_after_us":2}"#);
        assert!(matches!(&found[..], [EventMeaning::Watch { not_after_us: 2, .. }]), "{found:?}");
        let gone = of("certificate.unserved", "{}");
        assert!(matches!(&gone[..], [EventMeaning::Resolve { .. }, EventMeaning::Forget { .. }]), "{gone:?}");
        let much = of("watch.finished", r#"{"name":"edge","counts":{"untold":7}}"#);
        assert!(
            matches!(&much[1], EventMeaning::Raise { kind: "watch.untold", title, .. } if title.contains('7'))
        );
        let part = of(
            "watch.finished",
            r#"{"name":"edge","counts":{"not_listed":2,"not_listed_first":["aws/1: denied","gcp/2: denied"]}}"#,
        );
        let [
            _,
            EventMeaning::Resolve { kinds: ["watch.untold"], .. },
            EventMeaning::Raise { kind, attributes, .. },
        ] = &part[..]
        else {
            panic!("{part:?}")
        };
        assert_eq!(*kind, "watch.incomplete");
        assert_eq!(attributes.detail.as_deref(), Some("aws/1: denied; gcp/2: denied"));
    }

    #[test]
    fn issuing_ends_trouble_and_begins_a_watch() {
        let body = r#"{"name":"web","team":"t","not_before":1,"not_after":"1970-01-01T00:00:01Z"}"#;
        let all = meanings(&event("certificate.issued", body));
        assert!(
            matches!(&all[0], EventMeaning::Resolve { kinds, .. } if kinds.contains(&"certificate.expiring"))
        );
        let EventMeaning::Watch { not_before_us: 1, not_after_us: 1_000_000, attributes, .. } = &all[1]
        else {
            panic!("{all:?}")
        };
        assert_eq!(attributes.team.as_deref(), Some("t"));
    }

    #[test]
    fn a_failed_watch_is_told_of_until_it_finishes_or_goes() {
        let failed = meanings(&event("watch.failed", r#"{"name":"edge","error":"the database is full"}"#));
        let [EventMeaning::Raise { kind: "watch.failed", title, attributes, .. }] = &failed[..] else {
            panic!("{failed:?}")
        };
        assert!(title.contains("edge") && attributes.detail.as_deref() == Some("the database is full"));
        for over in ["watch.finished", "watch.removed"] {
            let all = meanings(&event(over, "{}"));
            let ended = all.iter().flat_map(|one| match one {
                EventMeaning::Resolve { kinds, .. } => *kinds,
                other => panic!("{other:?}"),
            });
            assert_eq!(ended.collect::<BTreeSet<_>>(), WATCH_TROUBLE.iter().collect());
        }
    }

    #[test]
    fn what_the_ct_monitor_tells_is_raised_and_resolved() {
        for (event_kind, body, kind, severity, over) in [
            (
                "ct.unexpected_issuance",
                r#"{"name":"example.com","issuer":"O=Evil CA","detail":"a.example.com"}"#,
                "ct.unexpected_issuance",
                Severity::High,
                &["ct.issuance_expected", "ct.issuance_acknowledged"][..],
            ),
            (
                "ct.log_inconsistent",
                r#"{"name":"Log","alarm":"forked"}"#,
                "ct.log_inconsistent",
                Severity::Critical,
                &["ct.log_consistent"],
            ),
            (
                "ct.log_inconsistent",
                r#"{"name":"Log","alarm":"wrong-tile"}"#,
                "ct.log_inconsistent",
                Severity::High,
                &["ct.log_consistent"],
            ),
            ("ct.behind", r#"{"name":"crt.sh"}"#, "ct.behind", Severity::Medium, &["ct.caught_up"]),
        ] {
            let raised = meanings(&event(event_kind, body));
            let [EventMeaning::Raise { kind: told, severity: weight, title, .. }] = &raised[..] else {
                panic!("{raised:?}")
            };
            assert_eq!((*told, *weight), (kind, severity), "{title}");
            for over in over {
                let all = meanings(&event(over, "{}"));
                assert!(
                    matches!(&all[..], [EventMeaning::Resolve { kinds, .. }] if kinds.contains(&kind)),
                    "{all:?}"
                );
            }
        }
    }

    #[test]
    fn a_drift_is_told_of_until_it_is_over() {
        for (kind, severity) in [
            ("drift.scan_slow", Severity::Medium),
            ("drift.provider_errors", Severity::High),
            ("drift.database_pool", Severity::High),
            ("drift.tasks", Severity::High),
        ] {
            let began = meanings(&event(kind, r#"{"name":"tasks","detail":"210, and 40 before"}"#));
            let [EventMeaning::Raise { kind: raised, severity: weight, title, attributes, .. }] = &began[..]
            else {
                panic!("{began:?}")
            };
            assert_eq!((*raised, *weight), (kind, severity));
            assert!(title.starts_with("tasks: ") && attributes.detail.is_some(), "{title}");
            let over = meanings(&event(&format!("{kind}_over"), "{}"));
            assert!(
                matches!(&over[..], [EventMeaning::Resolve { kinds, .. }] if *kinds == [kind]),
                "{over:?}"
            );
        }
        assert_eq!(meanings(&event("drift.unheard_of", "{}")), []);
    }

    #[test]
    fn an_event_nobody_knows_means_nothing_and_a_body_that_is_odd_does_no_harm() {
        assert_eq!(meanings(&event("thing.happened", "{}")), []);
        for body in ["", "[]", "7", r#"{"tags":7}"#, r#"{"not_before":{}}"#] {
            assert_eq!(meanings(&event("certificate.issued", body)).len(), 1, "{body}");
        }
    }
}
