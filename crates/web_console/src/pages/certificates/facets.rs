//! Facets of the list: the values of a property with their counts. Each value is a link that filters the list.

use jiff::Timestamp;
use serde_json::Value;

use super::shared::{LIST, PAGE};
use crate::failure::Failure;
use crate::query::with_query;
use crate::session::Session;
use crate::{format, json};

/// Query parameters that filter the list. Other parameters sort it.
pub(super) const FILTERS: &[&str] = &[
    "status",
    "name",
    "profile",
    "issuer",
    "ca",
    "owner",
    "team",
    "environment",
    "policy",
    "agent",
    "tag",
    "expires_before",
    "expires_after",
    "contains",
    "suffix",
    "serial",
    "fingerprint",
    "algorithm",
    "finding",
];

/// Maximum values of a facet, the most frequent first.
const VALUES_MAX: usize = 8;

/// The facets of the list: the heading, the filter parameter, and the API's grouping.
const FACETS: &[(&str, &str, &str)] = &[
    ("State", "status", "status"),
    ("Issuer", "issuer", "issuer"),
    ("Owner", "owner", "owner"),
    ("Key type", "algorithm", "algorithm"),
];

/// The API's grouping by day of expiry.
const EXPIRY: &str = "expiry_day";

/// A property of certificates, with the counts of its values.
pub(super) struct Facet {
    pub(super) name: &'static str,
    pub(super) values: Vec<Bucket>,
    pub(super) all: Option<String>,
}

/// A value of a property, its count, and the link to the filtered list.
pub(super) struct Bucket {
    pub(super) words: String,
    pub(super) count: String,
    pub(super) href: Option<String>,
    pub(super) chosen: bool,
}

/// Returns the facets of a list with these filters. The API counts a facet without its own filter, so that another value can be
/// selected.
pub(super) async fn of(session: &Session, filters: &str) -> Result<Vec<Facet>, Failure> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(filters).unwrap_or_default();
    let names: Vec<&str> = FACETS.iter().map(|(.., by)| *by).chain([EXPIRY]).collect();
    let path = with_query(&format!("{LIST}/facets?by={}", names.join(",")), &without(&pairs, &[]));
    let counts = session.api.get(&path).await?;
    let groups = |by: &str| {
        let facet = json::list(&counts, "/facets").iter().find(|facet| json::text(facet, "/by") == by);
        facet.map_or(&[][..], |facet| json::list(facet, "/groups"))
    };
    let mut facets = Vec::new();
    for (name, parameter, by) in FACETS {
        let rest = without(&pairs, &[parameter]);
        let chosen = pairs.iter().find(|(known, _)| known == parameter).map(|(_, value)| value.as_str());
        let values =
            groups(by).iter().take(VALUES_MAX).map(|group| bucket(group, parameter, &rest, chosen)).collect();
        facets.push(Facet { name, values, all: chosen.map(|_| page(&rest)) });
    }
    let rest = without(&pairs, &["expires_before", "expires_after"]);
    let chosen = pairs.iter().any(|(name, _)| name.starts_with("expires_"));
    let values = windows(session.now, groups(EXPIRY), &rest, filters);
    facets.push(Facet { name: "Expires", values, all: chosen.then(|| page(&rest)) });
    Ok(facets)
}

/// Returns the filters without these parameters, and without sort parameters.
fn without(pairs: &[(String, String)], names: &[&str]) -> String {
    let remaining = pairs
        .iter()
        .filter(|(name, _)| FILTERS.contains(&name.as_str()) && !names.contains(&name.as_str()))
        .map(|(name, value)| format!("{}={}", api::path::segment(name), api::path::segment(value)));
    remaining.collect::<Vec<_>>().join("&")
}

fn page(query: &str) -> String {
    if query.is_empty() { PAGE.to_owned() } else { format!("{PAGE}?{query}") }
}

fn filtered_href(rest: &str, more: &str) -> String {
    page(&if rest.is_empty() { more.to_owned() } else { format!("{rest}&{more}") })
}

fn bucket(group: &Value, parameter: &str, rest: &str, chosen: Option<&str>) -> Bucket {
    let value = json::text(group, "/value");
    let href = format!("{parameter}={}", api::path::segment(value));
    Bucket {
        words: if value.is_empty() { "none".to_owned() } else { value.replace('_', " ") },
        count: format::number(json::number(group, "/count")),
        href: (!value.is_empty()).then(|| filtered_href(rest, &href)),
        chosen: chosen == Some(value),
    }
}

/// Returns spans of remaining days, with the number of certificates that expire in each.
fn windows(now: Timestamp, days: &[Value], rest: &str, filters: &str) -> Vec<Bucket> {
    let day = |after| format::day(now, after);
    let spans = [
        ("before today", None, Some(0)),
        ("within 7 days", Some(0), Some(7)),
        ("within 8 to 30 days", Some(7), Some(30)),
        ("within 31 to 90 days", Some(30), Some(90)),
        ("later", Some(90), None),
    ];
    let of = |(words, from, to): (&str, Option<i64>, Option<i64>)| {
        let (from, to) = (from.map(day), to.map(day));
        let is_in = |one: &&Value| {
            let value = json::text(one, "/value");
            let after = from.as_deref().is_none_or(|from| value >= from);
            !value.is_empty() && after && to.as_deref().is_none_or(|to| value < to)
        };
        let count: i64 = days.iter().filter(is_in).map(|one| json::number(one, "/count")).sum();
        let bounds = [("expires_after", from), ("expires_before", to)];
        let query = bounds.into_iter().filter_map(|(name, day)| {
            day.map(|day| format!("{name}={}", api::path::segment(&format!("{day}T00:00:00Z"))))
        });
        let query = query.collect::<Vec<_>>().join("&");
        let chosen = !query.is_empty()
            && query.split('&').all(|pair| filters.contains(pair))
            && query.matches('=').count() == filters.matches("expires_").count();
        Bucket {
            words: words.to_owned(),
            count: format::number(count),
            href: Some(filtered_href(rest, &query)),
            chosen,
        }
    };
    spans.into_iter().map(of).filter(|bucket| bucket.count != "0").collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expiry_days_are_counted_in_one_window_each() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let days = ["2026-11-28", "2026-11-29", "2026-12-06", "2026-12-29", "2027-05-01"];
        let days: Vec<Value> = days.iter().map(|day| json!({"value": day, "count": 2})).collect();
        let spans = windows(now, &days, "owner=ada", "");
        assert_eq!(spans.iter().map(|one| one.count.as_str()).collect::<Vec<_>>(), ["2"; 5]);
        assert!(
            spans[0].href.as_deref().unwrap().starts_with("/console/certificates?owner=ada&expires_before=")
        );
    }

    /// A bulk action on more certificates than its form lists sends the filter. If a member of the filter were missing, the action
    /// would select other certificates too.
    #[test]
    fn every_filter_of_the_api_is_retained() {
        let filter = serde_json::to_value(api::certificates::CertificateFilter::default()).unwrap();
        let members: Vec<&String> = filter.as_object().unwrap().keys().collect();
        let lost: Vec<_> = members.iter().filter(|name| !FILTERS.contains(&name.as_str())).collect();
        assert!(lost.is_empty() && members.len() == FILTERS.len(), "{lost:?}");
    }

    #[test]
    fn facet_query_omits_its_own_filter() {
        let pairs = [("status", "failed"), ("owner", "a b"), ("sort", "name")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(without(&pairs, &["status"]), "owner=a%20b");
    }
}
