//! Overview of the key service: sites, latencies between them, policies and encrypted keys.

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use super::{key_nodes, key_policies, key_sites, sealed_keys};
use crate::api::Api;
use crate::cell::Tone;
use crate::failure::Failure;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{format, json};

/// Maximum sites in the matrix, because more do not fit on a screen. The sites with the most nodes are shown.
const SITES_MAX: usize = 24;

/// Maximum round-trip time within a region, in milliseconds.
const NEAR_MS: i64 = 30;

/// Round-trip time above which handshakes are noticeably delayed, in milliseconds.
const FAR_MS: i64 = 150;

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/console/keys", get(page))
}

#[derive(Template)]
#[template(path = "keys.html")]
struct Keys {
    counts: Vec<Count>,
    matrix: RoundTripMatrix,
    more_sites: bool,
    nodes: Table,
    policies: Option<Table>,
    sealed: Option<Table>,
    may_enroll: bool,
    may_manage: bool,
    no_sites: bool,
}

struct Count {
    number: String,
    what: String,
    href: &'static str,
    tone: Tone,
}

/// The shortest round-trip times between sites.
#[derive(Debug, Default, PartialEq)]
struct RoundTripMatrix {
    sites: Vec<Site>,
    /// For each site, the milliseconds to each site in the same order; `None` if no node has measured it.
    rows: Vec<Vec<Option<i64>>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Site {
    name: String,
    present: usize,
    nodes: usize,
}

impl Site {
    fn tone(&self) -> Tone {
        match (self.present, self.nodes) {
            (_, 0) => Tone::Calm,
            (0, _) => Tone::Bad,
            (present, nodes) if present < nodes => Tone::Warn,
            _ => Tone::Good,
        }
    }

    fn state(&self) -> String {
        match self.nodes {
            0 => "no nodes".to_owned(),
            nodes => format!("{} of {nodes} present", self.present),
        }
    }
}

fn tone_of(milliseconds: Option<i64>) -> Tone {
    match milliseconds {
        None => Tone::Calm,
        Some(..=NEAR_MS) => Tone::Good,
        Some(..=FAR_MS) => Tone::Calm,
        Some(_) => Tone::Warn,
    }
}

async fn page(session: Session) -> Result<Response, Failure> {
    let sites = session.api.get("/api/v1/key-sites?limit=500").await?;
    let nodes = session.api.get("/api/v1/key-nodes?limit=500").await?;
    let policies = session.api.get_if_allowed("/api/v1/key-policies?limit=500").await?;
    let sealed = session.api.get_if_allowed("/api/v1/sealed-keys?limit=20").await?;
    let body = Keys {
        counts: counts(&sites, &nodes, policies.as_ref()),
        matrix: RoundTripMatrix::of(&sites, &nodes),
        more_sites: json::items(&sites).len() > SITES_MAX,
        nodes: key_nodes::table(&session, &nodes),
        policies: policies.as_ref().map(|policies| key_policies::table(&session, policies)),
        sealed: sealed.as_ref().map(|sealed| sealed_keys::table(&session, sealed)),
        may_enroll: session.may("node.enroll"),
        may_manage: session.may("node.manage"),
        no_sites: json::items(&sites).is_empty(),
    };
    Page::new(&session, "Keys")
        .command("bulla key site list")
        .command("bulla key node list")
        .command("bulla key top")
        .reads("/api/v1/key-sites")
        .reads("/api/v1/key-nodes")
        .reads("/api/v1/key-policies")
        .reads("/api/v1/sealed-keys")
        .show(&body)
}

fn counts(sites: &Value, nodes: &Value, policies: Option<&Value>) -> Vec<Count> {
    let absent = json::items(nodes).iter().filter(|node| !json::flag(node, "/present")).count();
    let count = |listing: &Value, one: &str, many: &str, href| {
        let count = json::items(listing).len();
        let what = if count == 1 { one } else { many };
        Count { number: at_least(count, listing), what: what.to_owned(), href, tone: Tone::Calm }
    };
    let mut counts = vec![
        count(sites, "site", "sites", key_sites::PAGE),
        count(nodes, "node enrolled", "nodes enrolled", key_nodes::PAGE),
    ];
    if absent > 0 {
        let number = absent.to_string();
        counts.push(Count {
            number,
            what: format!("{} without a recent heartbeat", format::noun(absent, "node")),
            href: key_nodes::PAGE,
            tone: Tone::Bad,
        });
    }
    counts.extend(policies.map(|policies| count(policies, "policy", "policies", key_policies::PAGE)));
    counts
}

fn at_least(count: usize, listing: &Value) -> String {
    let more = !json::text(listing, "/next").is_empty();
    format!("{count}{}", if more { "+" } else { "" })
}

impl RoundTripMatrix {
    fn of(sites: &Value, nodes: &Value) -> Self {
        let mut shown: Vec<Site> = json::items(sites).iter().map(|site| parse_site(site, nodes)).collect();
        shown.sort_by(|one, other| other.nodes.cmp(&one.nodes).then_with(|| one.name.cmp(&other.name)));
        shown.truncate(SITES_MAX);
        shown.sort_by(|one, other| one.name.cmp(&other.name));
        let row = |from: &Site| shown.iter().map(|to| shortest(nodes, &from.name, &to.name)).collect();
        let rows: Vec<Vec<Option<i64>>> = shown.iter().map(row).collect();
        Self { sites: shown, rows }.order_by_proximity()
    }

    /// Orders the sites so that each is followed by its nearest remaining site. Sites with short round-trip times are then near
    /// each other in the matrix.
    fn order_by_proximity(self) -> Self {
        let mut left: Vec<usize> = (0..self.sites.len()).collect();
        let mut order = Vec::with_capacity(left.len());
        let mut last = None;
        while !left.is_empty() {
            let distance = |to: usize| last.and_then(|from| self.between(from, to)).unwrap_or(i64::MAX);
            let nearest = (0..left.len()).min_by_key(|index| distance(left[*index])).unwrap_or_default();
            let next = left.remove(nearest);
            last = Some(next);
            order.push(next);
        }
        let row = |from: &usize| order.iter().map(|to| self.at(*from, *to)).collect();
        Self {
            sites: order.iter().filter_map(|index| self.sites.get(*index).cloned()).collect(),
            rows: order.iter().map(row).collect(),
        }
    }

    /// Returns each site with its cells: the CSS class, and the milliseconds if known.
    fn cells(&self) -> Vec<(&Site, Vec<(&'static str, String)>)> {
        let cell =
            |time: &Option<i64>| (tone_of(*time).class(), time.map_or_else(String::new, |ms| ms.to_string()));
        self.sites.iter().zip(&self.rows).map(|(site, row)| (site, row.iter().map(cell).collect())).collect()
    }

    fn at(&self, from: usize, to: usize) -> Option<i64> {
        self.rows.get(from).and_then(|row| row.get(to)).copied().flatten()
    }

    /// Returns the round-trip time between two sites, measured from either one: a site may have no node that measures.
    fn between(&self, one: usize, other: usize) -> Option<i64> {
        self.at(one, other).into_iter().chain(self.at(other, one)).min()
    }
}

fn parse_site(site: &Value, nodes: &Value) -> Site {
    let name = json::text(site, "/name");
    let own = json::items(nodes).iter().filter(|node| json::text(node, "/site") == name);
    let own: Vec<&Value> = own.collect();
    let present = own.iter().filter(|node| json::flag(node, "/present")).count();
    Site { name: name.to_owned(), present, nodes: own.len() }
}

/// Returns the shortest round-trip time that an online node of one site has measured to a node of another, in milliseconds.
fn shortest(nodes: &Value, from: &str, to: &str) -> Option<i64> {
    let at = |site: &str, node: &&Value| json::text(node, "/site") == site && json::flag(node, "/present");
    let targets: Vec<&str> =
        json::items(nodes).iter().filter(|node| at(to, node)).map(|node| json::text(node, "/id")).collect();
    let measured = json::items(nodes)
        .iter()
        .filter(|node| at(from, node))
        .filter_map(|node| node.pointer("/measured").and_then(Value::as_object));
    let times = measured.flatten().filter(|(id, _)| targets.contains(&id.as_str()));
    times.filter_map(|(_, milliseconds)| milliseconds.as_i64()).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(id: &str, site: &str, present: bool, measured: Value) -> Value {
        json!({ "id": id, "site": site, "present": present, "measured": measured })
    }

    fn matrix(sites: &[&str], nodes: &[Value]) -> RoundTripMatrix {
        let sites: Vec<Value> = sites.iter().map(|name| json!({ "name": name })).collect();
        RoundTripMatrix::of(&json!({ "items": sites }), &json!({ "items": nodes }))
    }

    #[test]
    fn site_matrix_has_the_shortest_round_trips_between_present_nodes() {
        let nodes = [
            node("f1", "frankfurt", true, json!({ "f2": 2, "p1": 9 })),
            node("f2", "frankfurt", true, json!({ "p1": 7, "gone": 1 })),
            node("p1", "paris", true, json!({})),
            node("p2", "paris", false, json!({ "f1": 1 })),
        ];
        let found = matrix(&["frankfurt", "paris", "tokyo"], &nodes);
        let names: Vec<&str> = found.sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, ["frankfurt", "paris", "tokyo"]);
        assert_eq!(found.rows[0], [Some(2), Some(7), None]);
        assert_eq!(found.rows[1], [None, None, None], "p1 measured nothing, p2 is absent");
        let states: Vec<String> = found.sites.iter().map(Site::state).collect();
        assert_eq!(states, ["2 of 2 present", "1 of 2 present", "no nodes"]);
        assert_eq!(
            found.sites.iter().map(Site::tone).collect::<Vec<_>>(),
            [Tone::Good, Tone::Warn, Tone::Calm]
        );
    }

    #[test]
    fn sites_with_short_round_trips_are_adjacent() {
        let nodes = [
            node("a", "amsterdam", true, json!({ "o": 220, "p": 10, "t": 230 })),
            node("o", "osaka", true, json!({ "t": 8, "p": 215 })),
            node("p", "paris", true, json!({})),
            node("t", "tokyo", true, json!({})),
        ];
        let found = matrix(&["amsterdam", "osaka", "paris", "tokyo"], &nodes);
        let names: Vec<&str> = found.sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, ["amsterdam", "paris", "osaka", "tokyo"]);
        assert_eq!(found.rows[2][3], Some(8));
    }

    #[test]
    fn site_matrix_is_limited_and_includes_sites_with_nodes() {
        let names: Vec<String> = (0..40).map(|number| format!("s{number:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = matrix(&names, &[node("x", "s39", true, json!({}))]);
        assert_eq!(found.sites.len(), SITES_MAX);
        assert!(found.sites.iter().any(|site| site.name == "s39"), "one with a node is among them");
        assert_eq!(matrix(&[], &[]), RoundTripMatrix::default());
    }
}
