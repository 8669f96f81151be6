//! Times at which agents were last seen. Written in batches, at most once a minute for each agent.

use std::collections::HashMap;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::tables::AgentFacts;
use crate::work::HostFacts;

/// Interval in which the last-seen time of a polling agent is written, in µs.
const EVERY_US: i64 = 60 * 1_000_000;
/// Time in µs without a contact after which the written entry of an agent is dropped from memory.
const FORGET_US: i64 = 3_600 * 1_000_000;
/// Maximum characters of one fact, such as the host name.
const FACT_MAX: usize = 256;
/// Maximum number of addresses that are stored for an agent.
const ADDRESSES_MAX: usize = 16;

/// A contact of an agent: its id, the time in µs since 1970-01-01 UTC, and its facts.
pub(super) type Contact = (Uuid, i64, AgentFacts);

/// Contacts of agents that are written to the database, and contacts that are still to be written. At most one entry per agent in
/// each set; only enrolled agents have entries.
#[derive(Default)]
pub(super) struct Presence(Mutex<State>);

#[derive(Default)]
struct State {
    written: HashMap<Uuid, (i64, AgentFacts)>,
    pending: HashMap<Uuid, (i64, AgentFacts)>,
}

impl Presence {
    /// Records an agent's contact. Writes it only at intervals, or if the facts changed.
    pub(super) fn seen(&self, agent: Uuid, at_us: i64, facts: HostFacts) {
        let facts = stored(facts);
        let mut state = self.0.lock();
        let fresh = state.written.get(&agent).is_some_and(|(written, before)| {
            (*written..*written + EVERY_US).contains(&at_us) && *before == facts
        });
        if !fresh {
            state.pending.insert(agent, (at_us, facts));
        }
    }

    /// Returns the contacts to write now, and marks them as written.
    pub(super) fn take(&self) -> Vec<Contact> {
        let mut state = self.0.lock();
        let pending = std::mem::take(&mut state.pending);
        let newest = pending.values().map(|(at, _)| *at).max().unwrap_or(i64::MIN);
        if !pending.is_empty() {
            state.written.retain(|_, (at, _)| *at > newest.saturating_sub(FORGET_US));
        }
        state.written.extend(pending.iter().map(|(agent, seen)| (*agent, seen.clone())));
        let mut seen: Vec<_> = pending.into_iter().map(|(agent, (at, facts))| (agent, at, facts)).collect();
        // Sort the rows, so that two nodes do not deadlock.
        seen.sort_unstable_by_key(|(agent, _, _)| *agent);
        seen
    }

    /// Puts contacts back after a failed write, to be written later. A newer contact of the same agent takes precedence.
    pub(super) fn requeue(&self, seen: Vec<Contact>) {
        let mut state = self.0.lock();
        for (agent, at, facts) in seen {
            state.written.remove(&agent);
            state.pending.entry(agent).or_insert((at, facts));
        }
    }

    pub(super) fn forget(&self, agent: Uuid) {
        let mut state = self.0.lock();
        state.written.remove(&agent);
        state.pending.remove(&agent);
    }
}

/// Returns the facts in their stored form: bounded and printable.
pub(super) fn stored(facts: HostFacts) -> AgentFacts {
    let plain = |text: String| -> String {
        text.chars().filter(|letter| !letter.is_control()).take(FACT_MAX).collect()
    };
    let addresses: Vec<String> = facts
        .addresses
        .split(',')
        .filter_map(|text| text.trim().parse::<std::net::IpAddr>().ok())
        .take(ADDRESSES_MAX)
        .map(|address| address.to_string())
        .collect();
    AgentFacts {
        hostname: plain(facts.hostname),
        os: plain(facts.os),
        arch: plain(facts.arch),
        version: plain(facts.version),
        addresses: serde_json::json!(addresses).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = EVERY_US;

    fn facts(version: &str) -> HostFacts {
        HostFacts { version: version.to_owned(), ..HostFacts::default() }
    }

    #[test]
    fn agent_presence_is_written_once_a_minute_or_on_change() {
        let presence = Presence::default();
        let agent = Uuid::now_v7();
        let written = |at: i64, version: &str| {
            presence.seen(agent, at, facts(version));
            presence.take().len()
        };
        assert_eq!(written(0, "1"), 1);
        assert_eq!(written(MINUTE - 1, "1"), 0);
        assert_eq!(written(MINUTE, "1"), 1);
        assert_eq!(written(MINUTE + 1, "2"), 1, "a new version");
        assert_eq!(written(5, "2"), 1, "a clock set back");
    }

    #[test]
    fn presence_that_could_not_be_written_is_kept() {
        let presence = Presence::default();
        let agent = Uuid::now_v7();
        presence.seen(agent, 0, facts("1"));
        let seen = presence.take();
        presence.requeue(seen.clone());
        assert_eq!(presence.take(), seen);
        presence.requeue(seen);
        presence.seen(agent, 9, facts("1"));
        assert_eq!(presence.take()[0].1, 9, "the newer one");
    }

    #[test]
    fn host_facts_are_truncated_and_invalid_addresses_dropped() {
        let wild = HostFacts {
            hostname: "a\u{7}b".repeat(1_000),
            addresses: "10.0.0.1, x, 2001:db8::1,<script>".to_owned(),
            ..HostFacts::default()
        };
        let truncated = stored(wild);
        assert_eq!(truncated.hostname.len(), FACT_MAX);
        assert_eq!(truncated.addresses, r#"["10.0.0.1","2001:db8::1"]"#);
    }
}
