//! Determines the notices about one endpoint from its observation and its last notice. Pure functions.

use std::collections::BTreeMap;

use events::{
    CertificateChange, CertificateFound, Condition, EndpointCertificate, EndpointCertificateChanged,
    EndpointTrouble, EndpointTroubleOver, Event, Ownership,
};
use scan::target::CloudStore;
use serde::Deserialize;
use store::time_limits;
use store::{EndpointKey, NewEvent, new_event};
use x509::Severity;

use crate::record;
use crate::tables::endpoint_notices::{EndpointNotice, SeenEndpoint, SeenLeaf, SilentEndpoint};
use crate::tables::watches::{WatchOutcome, WatchRow};

/// Maximum notices of one kind, such as problems or changes, that one run sends for single endpoints. A problem that affects many
/// endpoints belongs in a report, not in a pager. Later runs report the remaining problems if they persist.
pub const NOTICES_MAX: usize = 100;
/// Longest evidence of a finding in an event, in bytes.
const EVIDENCE_MAX: usize = 512;
/// Maximum clock difference between nodes, µs. A run that began up to this long after a change of the ownership rules may have
/// used the old rules.
const CLOCKS_APART_US: i64 = 300_000_000;

/// Maximum remaining validity at which an issuer certificate counts as expiring soon, µs. The usual limit is a tenth of its
/// lifetime. CAs take weeks to replace an issuer certificate.
const CHAIN_SOON_US: i64 = 30 * 86_400_000_000;

/// All conditions, in the order in which they are reported.
const CONDITIONS: [Condition; 10] = [
    Condition::Mismatch,
    Condition::Untrusted,
    Condition::Weak,
    Condition::Revoked,
    Condition::KeyNotProven,
    Condition::Outdated,
    Condition::Silent,
    Condition::NotYetValid,
    Condition::ChainEnds,
    Condition::Critical,
];

/// Returns the bit of a condition in [`EndpointNotice`].
fn bit(condition: Condition) -> i64 {
    match condition {
        Condition::Mismatch => 1,
        Condition::Untrusted => 2,
        Condition::Weak => 4,
        Condition::Revoked => 8,
        Condition::KeyNotProven => 16,
        Condition::Outdated => 32,
        Condition::Silent => 64,
        Condition::NotYetValid => 128,
        Condition::ChainEnds => 256,
        Condition::Critical => 512,
    }
}

/// Returns the condition of an endpoint that a finding causes; `None` for findings of expiry, which is monitored by date.
fn finding_condition(finding: &StoredFinding) -> Option<Condition> {
    Some(match finding.code.as_str() {
        "certificate.expired" | "certificate.expiring" | "certificate.expiring-fraction" => return None,
        "certificate.not-yet-valid" => Condition::NotYetValid,
        "endpoint.name-mismatch" => Condition::Mismatch,
        "chain.self-signed"
        | "chain.untrusted-root"
        // Code used before version 0.1.0, still in databases.
        | "chain.untrusted"
        | "chain.incomplete"
        | "chain.expired-intermediate"
        | "chain.invalid" => Condition::Untrusted,
        "certificate.weak-key"
        | "certificate.weak-signature"
        | "certificate.sha1-signature"
        | "protocol.obsolete"
        | "protocol.weak-cipher" => Condition::Weak,
        "endpoint.revoked" | "endpoint.staple-revoked" => Condition::Revoked,
        "endpoint.key-not-proven" => Condition::KeyNotProven,
        _ if finding.severity == Severity::Critical => Condition::Critical,
        _ => return None,
    })
}

/// A finding as stored with an observation.
#[derive(Deserialize)]
struct StoredFinding {
    code: String,
    title: String,
    #[serde(default)]
    evidence: String,
    #[serde(default = "least")]
    severity: Severity,
}

fn least() -> Severity {
    Severity::Info
}

/// Kinds of events that are counted together.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Topic {
    Condition(Condition),
    Change(CertificateChange),
}

/// Number of events that one run may still send, by topic.
#[derive(Default)]
pub(super) struct Budget {
    sent: BTreeMap<Topic, usize>,
    /// Number of events omitted because there were too many.
    pub(super) omitted: u64,
}

impl Budget {
    /// Resets the number of omitted notices, because each pass counts persisting conditions again.
    pub(super) fn begin_pass(&mut self) {
        self.omitted = 0;
    }

    fn take(&mut self, topic: Topic) -> bool {
        let sent = self.sent.entry(topic).or_insert(0);
        *sent += 1;
        let room = *sent <= NOTICES_MAX;
        self.omitted += u64::from(!room);
        room
    }
}

/// An event about an endpoint, before it is written to the outbox.
#[derive(Clone)]
pub(super) struct EndpointEvent {
    pub(super) at_us: i64,
    pub(super) subject: String,
    event: Event,
}

impl EndpointEvent {
    /// Returns the SHA-256 of a discovered certificate.
    pub(super) fn leaf(&self) -> Option<x509::Fingerprint> {
        match &self.event {
            Event::CertificateFound(found) => Some(found.found.certificate),
            _ => None,
        }
    }

    pub(super) fn set_ownership(&mut self, ownership: Ownership) {
        match &mut self.event {
            Event::EndpointTrouble(body) => body.ownership = ownership,
            Event::EndpointTroubleOver(body) => body.ownership = ownership,
            Event::EndpointCertificateChanged(body) => body.ownership = ownership,
            Event::CertificateFound(body) => body.ownership = ownership,
            _ => {}
        }
    }
}

impl From<EndpointEvent> for NewEvent {
    fn from(of: EndpointEvent) -> Self {
        new_event(of.at_us, of.subject, &of.event)
    }
}

/// The notices and events about one endpoint.
#[derive(Default)]
pub(super) struct News {
    pub(super) events: Vec<EndpointEvent>,
    /// A certificate whose expiry is monitored from now on.
    pub(super) found: Option<EndpointEvent>,
    /// The new notice, if it differs from the last one.
    pub(super) sent: Option<EndpointNotice>,
    /// Row of a certificate whose expiry was monitored for this endpoint, and no longer is.
    pub(super) unmonitored: Option<i64>,
}

/// The run that sends the notices.
#[derive(Clone, Copy)]
pub(super) struct NotifyingRun<'w> {
    pub(super) watch: &'w WatchRow,
    /// Whether this is the first run of the watch. Its results are the baseline, and are not reported as new.
    pub(super) baseline: bool,
    /// Whether owners may have changed since the last notice, so that expiry notices are sent again.
    pub(super) owners_changed: bool,
}

impl News {
    pub(super) fn has_notices(&self) -> bool {
        self.found.is_some() || !self.events.is_empty()
    }
}

/// Returns whether the ownership rules may have changed since the last complete run began. `changed_us` is the time of their last
/// change; 0 if they never changed.
pub(super) fn changed_since(changed_us: i64, watch: &WatchRow) -> bool {
    let last_run_us = watch
        .last
        .as_ref()
        .filter(|last| last.outcome == WatchOutcome::Finished)
        .map(|last| last.began_at_us);
    changed_us > 0
        && last_run_us.is_none_or(|last_run_us| last_run_us < changed_us.saturating_add(CLOCKS_APART_US))
}

/// Returns the notices about one endpoint.
pub(super) fn endpoint_news(seen: &SeenEndpoint, run: NotifyingRun<'_>, budget: &mut Budget) -> News {
    let (mut news, watch) = (News::default(), run.watch);
    let leaf = &seen.leaf;
    let found = findings(seen);
    let before = seen.sent.map_or(0, |sent| sent.conditions);
    let mut conditions = 0;
    for condition in CONDITIONS {
        let was = before & bit(condition) != 0;
        match found.iter().find(|(one, _)| *one == condition).filter(|_| !leaf.dismissed) {
            Some(_) if was => conditions |= bit(condition),
            Some((_, finding)) if budget.take(Topic::Condition(condition)) => {
                conditions |= bit(condition);
                news.events.push(condition_began(seen, watch, condition, finding));
            }
            None if was => news.events.push(condition_ended(&seen.endpoint, condition, seen.at_us)),
            _ => {}
        }
    }
    if let Some(change) = change_of(seen, run.baseline) {
        // A new listener is always reported. Other changes by managed or issued certificates are expected. All others are reported
        // within the budget, and always appear in the list of changes.
        let ours = change != CertificateChange::New && (leaf.managed || leaf.issued);
        let expected = ours || leaf.dismissed || change == CertificateChange::Renewed;
        let quiet = expected || !budget.take(Topic::Change(change));
        news.events.push(certificate_changed(seen, watch, change, quiet));
    }
    let expiry = !leaf.managed && !leaf.dismissed;
    let watched = seen.sent.filter(|sent| sent.expiry).map(|sent| sent.leaf);
    if expiry && (run.owners_changed || watched != Some(leaf.row)) {
        news.found = Some(certificate_found(seen, watch));
    }
    news.unmonitored = watched.filter(|watched| !expiry || *watched != leaf.row);
    let sent = EndpointNotice { leaf: leaf.row, issuer: leaf.issuer, chain: leaf.chain, conditions, expiry };
    news.sent = (seen.sent != Some(sent)).then_some(sent);
    news
}

fn change_of(seen: &SeenEndpoint, baseline: bool) -> Option<CertificateChange> {
    let Some(sent) = seen.sent else { return (seen.new && !baseline).then_some(CertificateChange::New) };
    if sent.leaf == seen.leaf.row {
        return (sent.chain != seen.leaf.chain).then_some(CertificateChange::Chain);
    }
    Some(if sent.issuer == seen.leaf.issuer { CertificateChange::Renewed } else { CertificateChange::Chain })
}

/// Returns the worst finding for each condition, worst first, and the conditions that only the inventory detects.
fn findings(seen: &SeenEndpoint) -> Vec<(Condition, StoredFinding)> {
    let all: Vec<StoredFinding> = serde_json::from_str(&seen.findings).unwrap_or_default();
    let mut found: Vec<_> = all.into_iter().filter_map(|one| Some((finding_condition(&one)?, one))).collect();
    found.extend(chain_ends(seen));
    let life_us = seen.leaf.not_after_us.saturating_sub(seen.leaf.not_before_us);
    let replaced = seen.leaf.replaced_at_us;
    let replaced =
        replaced.filter(|at_us| at_us.saturating_add(time_limits::replaced_us(life_us)) < seen.at_us);
    if let Some(at_us) = replaced {
        let since = jiff::Timestamp::from_microsecond(at_us).map(|at| at.to_string()).unwrap_or_default();
        found.push((
            Condition::Outdated,
            StoredFinding {
                code: "endpoint.outdated".to_owned(),
                title: "a replaced certificate version is still served".to_owned(),
                evidence: format!("a newer version has existed since {since}"),
                severity: Severity::High,
            },
        ));
    }
    found
}

/// Returns a finding if an issuer certificate expires before the leaf, or soon.
fn chain_ends(seen: &SeenEndpoint) -> Option<(Condition, StoredFinding)> {
    let leaf = &seen.leaf;
    let above = leaf.above.as_ref()?;
    let soon_us = (above.not_after_us.saturating_sub(above.not_before_us) / 10).clamp(0, CHAIN_SOON_US);
    if above.not_after_us <= seen.at_us {
        // Clients that use another certification path are not affected. For all other clients, the scan reports that the chain is
        // not trusted.
        return None;
    }
    let early = above.not_after_us < leaf.not_after_us;
    if !early && above.not_after_us.saturating_sub(soon_us) > seen.at_us {
        return None;
    }
    let at = jiff::Timestamp::from_microsecond(above.not_after_us).map(|at| at.to_string());
    let title = if early {
        "a certificate of the chain expires before the leaf"
    } else {
        "a certificate of the chain expires soon"
    };
    let finding = StoredFinding {
        code: "chain.ends".to_owned(),
        title: title.to_owned(),
        evidence: format!("{} ends at {}", above.subject, at.unwrap_or_default()),
        severity: Severity::High,
    };
    Some((Condition::ChainEnds, finding))
}

/// Returns the notices about an endpoint that has stopped responding; `None` when the budget is used up.
pub(super) fn news_of_silent(silent: &SilentEndpoint, watch: &WatchRow, budget: &mut Budget) -> Option<News> {
    if !budget.take(Topic::Condition(Condition::Silent)) {
        return None;
    }
    let event = Event::EndpointTrouble(EndpointTrouble {
        endpoint: EndpointCertificate {
            name: written(&silent.endpoint),
            watch: watch.settings.name.clone(),
            group: watch.settings.group.clone(),
            issuer: silent.issuer_name.clone(),
            certificate: x509::Fingerprint::from_bytes(silent.sha256),
            certificate_name: silent.name.clone(),
        },
        condition: Condition::Silent,
        code: "endpoint.silent".to_owned(),
        detail: format!("the endpoint answered before; the last probe ended with: {}", silent.outcome),
        ownership: Ownership::default(),
    });
    let event = EndpointEvent { at_us: silent.at_us, subject: subject(&silent.endpoint), event };
    let conditions = silent.sent.conditions | bit(Condition::Silent);
    let sent = EndpointNotice { conditions, ..silent.sent };
    Some(News { events: vec![event], sent: Some(sent), ..News::default() })
}

/// Returns whether the last notice reports that the endpoint does not respond.
pub(super) fn is_silent(sent: &EndpointNotice) -> bool {
    sent.conditions & bit(Condition::Silent) != 0
}

pub(super) fn conditions_in(conditions: i64) -> impl Iterator<Item = Condition> {
    CONDITIONS.into_iter().filter(move |one| conditions & bit(*one) != 0)
}

/// Formats the endpoint for people.
fn written(endpoint: &EndpointKey) -> String {
    let text = record::target(endpoint)
        .map_or_else(|| format!("{}:{}", endpoint.host, endpoint.port), |target| target.to_string());
    if endpoint.address.is_empty() { text } else { format!("{text} at {}", endpoint.address) }
}

fn subject(endpoint: &EndpointKey) -> String {
    format!("endpoint/{}", written(endpoint))
}

pub(super) fn found(leaf: &[u8; 32]) -> String {
    format!("found/{}", x509::Fingerprint::from_bytes(*leaf))
}

/// Returns the common fields of events about an endpoint.
fn certificate(seen: &SeenEndpoint, watch: &WatchRow) -> EndpointCertificate {
    EndpointCertificate {
        name: written(&seen.endpoint),
        watch: watch.settings.name.clone(),
        group: watch.settings.group.clone(),
        issuer: seen.leaf.issuer_name.clone(),
        certificate: x509::Fingerprint::from_bytes(seen.leaf.sha256),
        certificate_name: name_of(&seen.leaf).to_owned(),
    }
}

fn name_of(leaf: &SeenLeaf) -> &str {
    leaf.name.as_deref().unwrap_or(&leaf.subject)
}

fn condition_began(
    seen: &SeenEndpoint,
    watch: &WatchRow,
    condition: Condition,
    finding: &StoredFinding,
) -> EndpointEvent {
    let evidence: String = finding.evidence.chars().take(EVIDENCE_MAX).collect();
    let detail =
        if evidence.is_empty() { finding.title.clone() } else { format!("{}: {evidence}", finding.title) };
    let event = Event::EndpointTrouble(EndpointTrouble {
        endpoint: certificate(seen, watch),
        condition,
        code: finding.code.clone(),
        detail,
        ownership: Ownership::default(),
    });
    EndpointEvent { at_us: seen.at_us, subject: subject(&seen.endpoint), event }
}

pub(super) fn condition_ended(endpoint: &EndpointKey, condition: Condition, at_us: i64) -> EndpointEvent {
    let (name, ownership) = (written(endpoint), Ownership::default());
    let event = Event::EndpointTroubleOver(EndpointTroubleOver { name, condition, ownership });
    EndpointEvent { at_us, subject: subject(endpoint), event }
}

fn certificate_changed(
    seen: &SeenEndpoint,
    watch: &WatchRow,
    change: CertificateChange,
    quiet: bool,
) -> EndpointEvent {
    let event = Event::EndpointCertificateChanged(EndpointCertificateChanged {
        endpoint: certificate(seen, watch),
        change,
        quiet,
        detail: format!("{} of {}", name_of(&seen.leaf), seen.leaf.issuer_name),
        ownership: Ownership::default(),
    });
    EndpointEvent { at_us: seen.at_us, subject: subject(&seen.endpoint), event }
}

fn certificate_found(seen: &SeenEndpoint, watch: &WatchRow) -> EndpointEvent {
    let is_cloud = seen.endpoint.protocol.parse::<CloudStore>().is_ok();
    let how = if is_cloud { "kept in" } else { "served at" };
    let event = Event::CertificateFound(CertificateFound {
        found: EndpointCertificate { name: name_of(&seen.leaf).to_owned(), ..certificate(seen, watch) },
        detail: format!("{how} {}", written(&seen.endpoint)),
        not_before_us: seen.leaf.not_before_us,
        // Clients fail when the first certificate of the chain expires.
        not_after_us: seen
            .leaf
            .above
            .as_ref()
            .map_or(seen.leaf.not_after_us, |above| seen.leaf.not_after_us.min(above.not_after_us)),
        ownership: Ownership::default(),
    });
    EndpointEvent { at_us: seen.at_us, subject: found(&seen.leaf.sha256), event }
}

#[cfg(test)]
mod tests {
    use crate::tables::endpoint_notices::SeenIssuer;
    use crate::tables::watches::{WatchLast, WatchSettings, WatchTimes};
    use uuid::Uuid;

    use super::*;

    const DAY_US: i64 = 86_400_000_000;

    fn watch() -> WatchRow {
        WatchRow {
            id: Uuid::nil(),
            settings: WatchSettings {
                name: "edge".to_owned(),
                group: String::new(),
                spec: String::new(),
                interval_us: DAY_US,
                jitter_us: 0,
                enabled: true,
            },
            revision: 1,
            times: WatchTimes { planned_at_us: 0, next_run_at_us: 0 },
            claims: 1,
            run: None,
            last: None,
            created_at_us: 0,
            updated_at_us: 0,
        }
    }

    fn seen(sent: Option<EndpointNotice>) -> SeenEndpoint {
        SeenEndpoint {
            row: 1,
            endpoint: EndpointKey {
                host: "a.example".to_owned(),
                port: 443,
                protocol: "tls".to_owned(),
                server_name: "a.example".to_owned(),
                address: String::new(),
            },
            new: sent.is_none(),
            at_us: 10 * DAY_US,
            address: None,
            findings: "[]".to_owned(),
            leaf: SeenLeaf {
                row: 7,
                sha256: [7; 32],
                subject: "CN=a.example".to_owned(),
                name: Some("a.example".to_owned()),
                issuer: 3,
                issuer_name: "CN=Issuer".to_owned(),
                not_before_us: 0,
                not_after_us: 90 * DAY_US,
                chain: 5,
                above: None,
                managed: false,
                replaced_at_us: None,
                issued: false,
                dismissed: false,
            },
            sent,
        }
    }

    /// Returns the topics of the notices, without details.
    fn topics(news: &News) -> Vec<(&'static str, Topic)> {
        let of = |one: &EndpointEvent| {
            let topic = match &one.event {
                Event::EndpointTrouble(body) => Topic::Condition(body.condition),
                Event::EndpointTroubleOver(body) => Topic::Condition(body.condition),
                Event::EndpointCertificateChanged(body) => Topic::Change(body.change),
                other => panic!("{other:?}"),
            };
            (one.event.kind(), topic)
        };
        news.events.iter().map(of).collect()
    }

    fn news(seen: &SeenEndpoint) -> News {
        let watch = watch();
        let run = NotifyingRun { watch: &watch, baseline: false, owners_changed: false };
        endpoint_news(seen, run, &mut Budget::default())
    }

    #[test]
    fn replaced_certificate_still_in_use_is_reported_after_a_day() {
        let sent = EndpointNotice { leaf: 7, issuer: 3, chain: 5, conditions: 0, expiry: false };
        let mut one = seen(Some(sent));
        one.leaf.managed = true;
        one.leaf.replaced_at_us = Some(9 * DAY_US);
        assert_eq!(topics(&news(&one)), []);
        one.leaf.replaced_at_us = Some(9 * DAY_US - 1);
        let began = news(&one);
        assert_eq!(topics(&began), [("endpoint.trouble", Topic::Condition(Condition::Outdated))]);
        // The new version has been installed.
        let mut over = seen(began.sent);
        over.leaf = SeenLeaf { row: 8, managed: true, ..over.leaf };
        let over = topics(&news(&over));
        assert_eq!(over[0], ("endpoint.trouble_over", Topic::Condition(Condition::Outdated)));
    }

    fn above(not_after_us: i64) -> Option<SeenIssuer> {
        let subject = "CN=Issuer".to_owned();
        Some(SeenIssuer { subject, not_before_us: not_after_us - 3_650 * DAY_US, not_after_us })
    }

    #[test]
    fn chain_that_expires_soon_or_before_its_leaf_is_reported() {
        let sent = EndpointNotice { leaf: 7, issuer: 3, chain: 5, conditions: 0, expiry: false };
        let ends = [("endpoint.trouble", Topic::Condition(Condition::ChainEnds))];
        // Today is day 10; the leaf expires on day 90. The days are expiry days of the issuer certificate.
        for (day, is_reported) in [(9, false), (11, true), (89, true), (90, false), (4_000, false)] {
            let mut one = seen(Some(sent));
            one.leaf.above = above(day * DAY_US);
            let news = news(&one);
            let expected = if is_reported { &ends[..] } else { &[] };
            assert_eq!(topics(&news), expected, "{day}");
            let Event::CertificateFound(found) = &news.found.as_ref().unwrap().event else { panic!() };
            assert_eq!(found.not_after_us, day.min(90) * DAY_US);
        }
        let mut soon = seen(Some(sent));
        soon.leaf.not_after_us = 20 * DAY_US;
        soon.leaf.above = above(39 * DAY_US);
        assert_eq!(topics(&news(&soon)), ends, "30 days or less are left of ten years");
        soon.leaf.above = above(41 * DAY_US);
        assert_eq!(topics(&news(&soon)), []);
    }

    #[test]
    fn critical_findings_other_than_expiry_are_reported() {
        let sent = EndpointNotice { leaf: 7, issuer: 3, chain: 5, conditions: 0, expiry: true };
        let mut one = seen(Some(sent));
        let with = |one: &mut SeenEndpoint, code: &str, severity: &str| {
            one.findings = format!(r#"[{{"code":"{code}","title":"t","severity":"{severity}"}}]"#);
            topics(&news(one))
        };
        let trouble = |condition| vec![("endpoint.trouble", Topic::Condition(condition))];
        assert_eq!(with(&mut one, "something.new", "critical"), trouble(Condition::Critical));
        assert_eq!(with(&mut one, "something.new", "high"), []);
        assert_eq!(with(&mut one, "certificate.not-yet-valid", "critical"), trouble(Condition::NotYetValid));
        assert_eq!(with(&mut one, "certificate.expired", "critical"), [], "its date is watched");
        assert_eq!(with(&mut one, "chain.expired-intermediate", "critical"), trouble(Condition::Untrusted));
    }

    #[test]
    fn new_endpoint_is_quiet_only_if_its_certificate_was_dismissed() {
        let quiet = |change: &dyn Fn(&mut SeenLeaf)| {
            let mut one = seen(None);
            change(&mut one.leaf);
            match &news(&one).events[0].event {
                Event::EndpointCertificateChanged(body) => (body.change, body.quiet),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(quiet(&|leaf| leaf.issued = true), (CertificateChange::New, false));
        assert_eq!(quiet(&|leaf| leaf.managed = true), (CertificateChange::New, false));
        assert_eq!(quiet(&|leaf| leaf.dismissed = true), (CertificateChange::New, true));
    }

    #[test]
    fn expiry_is_reported_again_after_ownership_rules_change() {
        let sent = EndpointNotice { leaf: 7, issuer: 3, chain: 5, conditions: 0, expiry: true };
        let (mut one, mut watch) = (seen(Some(sent)), watch());
        let found = |one: &SeenEndpoint, watch: &WatchRow, changed_us: i64| {
            let owners_changed = changed_since(changed_us, watch);
            let news = endpoint_news(
                one,
                NotifyingRun { watch, baseline: false, owners_changed },
                &mut Budget::default(),
            );
            assert_eq!(
                (news.events.len(), news.sent, news.unmonitored),
                (0, None, None),
                "nothing else is new"
            );
            news.found.is_some()
        };
        let mut ended = |outcome: WatchOutcome, began_at_us: i64| {
            let ended_at_us = began_at_us + 1;
            let last = WatchLast { scan: None, began_at_us, ended_at_us, outcome, error: None, counts: None };
            watch.last = Some(last);
            watch.clone()
        };
        let changed_us = DAY_US;
        assert!(!found(&one, &ended(WatchOutcome::Finished, 0), 0), "no rule ever was");
        assert!(found(&one, &ended(WatchOutcome::Finished, changed_us - 1), changed_us));
        assert!(found(&one, &ended(WatchOutcome::Finished, changed_us + CLOCKS_APART_US - 1), changed_us));
        assert!(!found(&one, &ended(WatchOutcome::Finished, changed_us + CLOCKS_APART_US), changed_us));
        assert!(
            found(&one, &ended(WatchOutcome::Failed, changed_us + CLOCKS_APART_US), changed_us),
            "it told of nothing"
        );
        one.leaf.dismissed = true;
        one.sent = Some(EndpointNotice { expiry: false, ..sent });
        assert!(!found(&one, &ended(WatchOutcome::Finished, 0), changed_us), "nobody wants to hear of it");
    }

    #[test]
    fn changed_issuer_is_a_chain_change_and_quiet_for_own_certificates() {
        let sent = EndpointNotice { leaf: 6, issuer: 2, chain: 4, conditions: 0, expiry: true };
        let one = seen(Some(sent));
        let quiet = |news: &News| match &news.events[0].event {
            Event::EndpointCertificateChanged(body) => body.quiet,
            other => panic!("{other:?}"),
        };
        let chain = [("endpoint.certificate_changed", Topic::Change(CertificateChange::Chain))];
        let changed = news(&one);
        assert_eq!(topics(&changed), chain);
        assert!(!quiet(&changed));
        assert_eq!(changed.unmonitored, Some(6));
        assert!(changed.found.is_some());
        let mut ours = seen(Some(sent));
        ours.leaf.issued = true;
        assert!(quiet(&news(&ours)));
        let mut other_above =
            seen(Some(EndpointNotice { leaf: 7, issuer: 3, chain: 4, conditions: 0, expiry: true }));
        assert_eq!(topics(&news(&other_above)), chain);
        other_above.leaf.dismissed = true;
        assert!(quiet(&news(&other_above)));
    }

    #[test]
    fn notices_are_limited_to_100_per_kind_and_the_rest_deferred() {
        let mut budget = Budget::default();
        let mut one = seen(None);
        one.findings =
            r#"[{"code":"protocol.obsolete","title":"old"},{"code":"endpoint.name-mismatch","title":"x"}]"#
                .to_owned();
        let watch = watch();
        let run = NotifyingRun { watch: &watch, baseline: true, owners_changed: false };
        let sent: Vec<i64> = (0..NOTICES_MAX + 3)
            .map(|_| endpoint_news(&one, run, &mut budget).sent.unwrap().conditions)
            .collect();
        let both = bit(Condition::Weak) | bit(Condition::Mismatch);
        assert!(sent[..NOTICES_MAX].iter().all(|conditions| *conditions == both));
        assert!(
            sent[NOTICES_MAX..].iter().all(|conditions| *conditions == 0),
            "not told, so still to be told"
        );
        assert_eq!(budget.omitted, 6);
    }
}
