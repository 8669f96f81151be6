//! All nodes in memory, in the order of their changes. Heartbeats are answered from this view, without the database.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use keyless::places::SignedStatement;
use parking_lot::RwLock;
use uuid::Uuid;

use crate::tables::NodeRow;
use crate::work::{MEMBERS_MAX, Membership};

/// In-memory copy of the nodes as of the last update: at most one member per node, and 40 bytes for each retired node.
#[derive(Default)]
pub(super) struct View(RwLock<State>);

#[derive(Default)]
struct State {
    last: i64,
    nodes: HashMap<Uuid, KnownNode>,
    by_change: BTreeMap<i64, Uuid>,
}

struct KnownNode {
    changed: i64,
    /// `None` once the node is retired.
    live: Option<LiveNode>,
}

struct LiveNode {
    spki_sha256: [u8; 32],
    address: String,
    /// Whether the node's lease is valid.
    is_present: bool,
    statement: Option<SignedStatement>,
    /// End of the statement's validity, in seconds since 1970-01-01 UTC.
    not_after_s: i64,
}

impl LiveNode {
    /// Returns the notice for other nodes about the node at `now_s`.
    fn report(&self, now_s: i64) -> Notice<'_> {
        match &self.statement {
            Some(statement) if self.is_present => Notice::Present(statement),
            Some(statement) if now_s < self.not_after_s => Notice::Absent(statement),
            _ => Notice::Removed,
        }
    }
}

/// A notice for other nodes about a node.
enum Notice<'s> {
    Present(&'s SignedStatement),
    /// The control plane receives no heartbeats from the node, but the node's statement is still valid.
    Absent(&'s SignedStatement),
    Removed,
}

/// Result of looking up a peer that claims to be a node.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum NodeStatus {
    /// The node is unknown: it may have joined since the last update.
    Unknown,
    Retired,
    /// The node has this key and this address.
    Node {
        spki_sha256: [u8; 32],
        address: String,
    },
}

impl View {
    /// Returns the sequence number of the newest node change in this view.
    pub(super) fn last(&self) -> i64 {
        self.0.read().last
    }

    /// Returns whether there is no node.
    pub(super) fn is_empty(&self) -> bool {
        self.0.read().nodes.values().all(|known| known.live.is_none())
    }

    /// Applies rows in the order of their changes.
    pub(super) fn take(&self, rows: Vec<NodeRow>) {
        let mut state = self.0.write();
        for row in rows {
            let known = KnownNode { changed: row.changed, live: live_from_row(&row) };
            state.last = state.last.max(row.changed);
            if let Some(before) = state.nodes.insert(row.id, known) {
                state.by_change.remove(&before.changed);
            }
            state.by_change.insert(row.changed, row.id);
        }
    }

    pub(super) fn node_status(&self, node: Uuid) -> NodeStatus {
        match self.0.read().nodes.get(&node) {
            None => NodeStatus::Unknown,
            Some(KnownNode { live: None, .. }) => NodeStatus::Retired,
            Some(KnownNode { live: Some(live), .. }) => {
                NodeStatus::Node { spki_sha256: live.spki_sha256, address: live.address.clone() }
            }
        }
    }

    /// Returns the changes after `since`, at most [`MEMBERS_MAX`], as of `now_s` (seconds since 1970-01-01 UTC).
    pub(super) fn membership(&self, since: i64, now_s: i64) -> Membership {
        let state = self.0.read();
        // The node knows nothing yet, or its number was never assigned, as after a restored backup.
        let anew = since <= 0 || since > state.last;
        let since = if anew { 0 } else { since };
        let mut report = Membership { since: state.last, anew, ..Membership::default() };
        let mut changes = state.by_change.range((Bound::Excluded(since), Bound::Unbounded));
        let mut count = 0;
        while let Some((change, node)) = changes.next() {
            let live = state.nodes.get(node).and_then(|known| known.live.as_ref());
            let state_of = live.map_or(Notice::Removed, |live| live.report(now_s));
            match state_of {
                Notice::Present(statement) => report.nodes.push(statement.clone()),
                Notice::Removed if anew => continue,
                Notice::Removed => report.gone.push(*node),
                Notice::Absent(statement) => {
                    report.absent.push(statement.clone());
                    if !anew {
                        report.gone.push(*node);
                    }
                }
            }
            count += 1;
            if count == MEMBERS_MAX {
                report.more = changes.next().is_some();
                report.since = if report.more { *change } else { state.last };
                break;
            }
        }
        report
    }

    /// Returns the numbers of present nodes and of other nodes that are not retired.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.0.read();
        let live = || state.nodes.values().filter_map(|known| known.live.as_ref());
        let present = live().filter(|live| live.is_present && live.statement.is_some()).count();
        (present, live().count() - present)
    }
}

fn live_from_row(row: &NodeRow) -> Option<LiveNode> {
    if row.retired_at_us.is_some() {
        return None;
    }
    let statement: Option<SignedStatement> = serde_json::from_str(&row.statement).ok();
    let not_after_s = statement.as_ref().and_then(SignedStatement::end_s).unwrap_or_default();
    Some(LiveNode {
        spki_sha256: row.spki_sha256,
        address: row.address.clone(),
        is_present: row.present,
        statement,
        not_after_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u128, changed: i64, present: bool) -> NodeRow {
        NodeRow {
            id: Uuid::from_u128(id),
            name: id.to_string(),
            site: Uuid::nil(),
            site_name: String::new(),
            site_attributes: "{}".to_owned(),
            attributes: "{}".to_owned(),
            address: "a:1".to_owned(),
            kem: Vec::new(),
            spki_sha256: [1; 32],
            not_after_us: 0,
            statement: format!(r#"{{"payload":"{id}","signature":""}}"#),
            sign_at_us: 0,
            revision: 1,
            changed,
            enrolled_at_us: 0,
            retired_at_us: None,
            hostile: false,
            lease_until_us: 0,
            present,
        }
    }

    fn ids(report: &Membership) -> Vec<&str> {
        report.nodes.iter().map(|node| node.payload.as_str()).collect()
    }

    #[test]
    fn membership_response_contains_only_changes() {
        let view = View::default();
        view.take(vec![row(1, 1, true), row(2, 2, false), row(3, 3, true)]);
        let all = view.membership(0, 0);
        assert_eq!(
            (ids(&all), all.gone.len(), all.since, all.anew, all.more),
            (vec!["1", "3"], 0, 3, true, false)
        );
        let nothing = view.membership(3, 0);
        assert!(nothing.nodes.is_empty() && nothing.gone.is_empty() && !nothing.anew && nothing.since == 3);
        view.take(vec![row(1, 4, false), row(2, 5, true)]);
        let news = view.membership(3, 0);
        assert_eq!((ids(&news), &news.gone[..], news.since), (vec!["2"], &[Uuid::from_u128(1)][..], 5));
        // Of two changes of a node only the last is sent.
        view.take(vec![row(2, 6, false)]);
        let news = view.membership(3, 0);
        assert_eq!((news.nodes.len(), news.gone.len(), news.since), (0, 2, 6));
    }

    #[test]
    fn absent_node_is_reported_while_its_statement_is_valid() {
        let lasting = |present, changed| NodeRow {
            statement: r#"{"payload":"{\"not_after_s\":100}","signature":""}"#.to_owned(),
            ..row(1, changed, present)
        };
        let view = View::default();
        view.take(vec![lasting(true, 1)]);
        view.take(vec![lasting(false, 2)]);
        let id = Uuid::from_u128(1);
        let report = view.membership(1, 99);
        assert_eq!((report.nodes.len(), report.absent.len(), &report.gone[..]), (0, 1, &[id][..]));
        let anew = view.membership(0, 99);
        assert_eq!((anew.nodes.len(), anew.absent.len(), anew.gone.len(), anew.anew), (0, 1, 0, true));
        let ended = view.membership(1, 100);
        assert_eq!((ended.absent.len(), &ended.gone[..]), (0, &[id][..]));
        assert_eq!(view.counts(), (0, 1));
        // A retirement takes effect immediately.
        view.take(vec![NodeRow { retired_at_us: Some(1), ..lasting(false, 3) }]);
        let report = view.membership(2, 99);
        assert_eq!((report.absent.len(), &report.gone[..]), (0, &[id][..]));
        assert!(view.membership(0, 99).absent.is_empty());
    }

    #[test]
    fn unknown_change_number_returns_a_full_listing() {
        let view = View::default();
        view.take(vec![row(1, 1, true)]);
        let report = view.membership(9, 0);
        assert_eq!((ids(&report), report.since, report.anew), (vec!["1"], 1, true));
    }

    #[test]
    fn membership_pages_are_bounded_and_complete() {
        let view = View::default();
        let count = MEMBERS_MAX * 2 + 10;
        view.take((1..=count).map(|n| row(n as u128, n as i64, n % 7 != 0)).collect());
        let (mut since, mut seen, mut answers) = (0, 0, 0);
        loop {
            let report = view.membership(since, 0);
            assert!(report.nodes.len() <= MEMBERS_MAX);
            seen += report.nodes.len();
            since = report.since;
            answers += 1;
            if !report.more {
                break;
            }
        }
        assert_eq!((seen, since, answers), (count - count / 7, count as i64, 2));
        assert_eq!(view.counts(), (count - count / 7, count / 7));
    }

    #[test]
    fn retired_node_has_status_retired() {
        let view = View::default();
        view.take(vec![row(1, 1, true), row(2, 2, true)]);
        let gone = NodeRow { retired_at_us: Some(1), ..row(1, 3, true) };
        view.take(vec![gone]);
        assert_eq!(view.node_status(Uuid::from_u128(1)), NodeStatus::Retired);
        assert_eq!(view.node_status(Uuid::from_u128(7)), NodeStatus::Unknown);
        assert!(matches!(view.node_status(Uuid::from_u128(2)), NodeStatus::Node { .. }));
        assert_eq!(view.membership(2, 0).gone, [Uuid::from_u128(1)]);
        assert!(!view.is_empty());
    }
}
