//! The overview: open problems, health, and expiry by day.

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use super::first_steps::{FirstStep, first_steps};
use crate::api::Api;
use crate::cell::Tone;
use crate::failure::Failure;
use crate::session::Session;
use crate::shell::Page;
use crate::{format, json};

/// Maximum rows that are counted, for lists without a count in the API.
const COUNTED_MAX: usize = 100;

/// API path of the nodes of the key service.
const NODES: &str = "/api/v1/key-nodes?limit=500&fields=site,present";

/// Page of the violations that [`waiting`] counts.
const VIOLATIONS: &str = "/console/violations?severity=warning";

/// Days ahead for which expiries are shown.
const DAYS: i64 = 90;

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/console", get(page))
}

/// A figure that may need action, with the page that lists the counted objects.
struct Need {
    count: String,
    what: &'static str,
    href: String,
    tone: Tone,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    steps: Vec<FirstStep>,
    needs: Vec<Need>,
    health: Vec<Need>,
    checked: String,
    certificates: String,
    states: Vec<(String, String)>,
    days: Vec<(String, i64)>,
    hours: Vec<(String, u64, u64, u64)>,
}

async fn page(session: Session) -> Result<Response, Failure> {
    let summary = session.api.get_if_allowed("/api/v1/certificates/summary").await?.unwrap_or_default();
    let mut needs = needs(&session, &summary);
    needs.extend(waiting(&session).await?);
    let series = session.api.get_if_allowed("/api/v1/series?names=issued,renewed,failed&step=hour").await?;
    let overview = Overview {
        steps: first_steps(&session, &summary).await?,
        needs,
        health: health(&session, &summary).await?,
        checked: format::minute(&session.now.to_string()),
        certificates: format::number(json::number(&summary, "/certificates")),
        states: states(&summary),
        days: days(&session, &summary),
        hours: series.as_ref().map(hours).unwrap_or_default(),
    };
    Page::new(&session, "Overview")
        .command("bulla cert summary")
        .reads("/api/v1/certificates/summary")
        .reads("/api/v1/alerts?state=open")
        .reads("/api/v1/publications")
        .reads(NODES)
        .reads("/api/v1/series?names=issued,renewed,failed&step=hour")
        .with_charts()
        .show(&overview)
}

fn needs(session: &Session, summary: &Value) -> Vec<Need> {
    let now = session.now.strftime("%FT%TZ").to_string();
    let week = format!("{}T00:00:00Z", format::day(session.now, 7));
    let list = "/console/certificates";
    let all = [
        (["expired"; 2], "/expired", Tone::Bad, format!("{list}?expires_before={now}")),
        (
            ["expires within 7 days", "expire within 7 days"],
            "/expiring_days/7",
            Tone::Warn,
            format!("{list}?expires_after={now}&expires_before={week}"),
        ),
        (
            ["failing renewal", "failing renewals"],
            "/statuses/failed",
            Tone::Bad,
            format!("{list}?status=failed"),
        ),
        (["not deployed to every target"; 2], "/not_deployed", Tone::Bad, "/console/deployments".to_owned()),
    ];
    let counted =
        all.into_iter().map(|(what, member, tone, href)| (json::number(summary, member), what, tone, href));
    let open = counted.filter(|(count, ..)| *count > 0);
    let need = |(count, [one, many], tone, href): (i64, [&'static str; 2], Tone, String)| {
        let what = if count == 1 { one } else { many };
        Need { count: format::number(count), what, href, tone }
    };
    open.map(need).collect()
}

/// Returns the numbers of open alerts, of open requests for approval, of offline agents and of policy violations. Leaves out
/// numbers that are 0.
async fn waiting(session: &Session) -> Result<Vec<Need>, Failure> {
    let all = [
        (["open alert", "open alerts"], "alerts?state=open&fields=id", Tone::Bad, "/console/alerts"),
        (
            ["certificate waits for approval", "certificates wait for approval"],
            "approvals?state=open&fields=id",
            Tone::Warn,
            "/console/approvals",
        ),
        (
            ["change waits for approval", "changes wait for approval"],
            "changes?state=open&fields=id",
            Tone::Warn,
            "/console/changes",
        ),
        (
            ["enrolment waits for approval", "enrolments wait for approval"],
            "enrolments?state=open&fields=id",
            Tone::Warn,
            "/console/enrolments",
        ),
        (
            ["agent offline", "agents offline"],
            "agents?online=false&fields=id",
            Tone::Bad,
            "/console/agents?online=false",
        ),
        (
            ["policy violation", "policy violations"],
            "violations?severity=warning&fields=rule",
            Tone::Warn,
            VIOLATIONS,
        ),
    ];
    let mut needs = Vec::new();
    for ([one, many], list, tone, href) in all {
        let path = format!("/api/v1/{list}&limit={COUNTED_MAX}");
        let listing = session.api.get_if_allowed(&path).await?.unwrap_or_default();
        let count = json::items(&listing).len();
        if count > 0 {
            let more = if json::text(&listing, "/next").is_empty() { "" } else { "+" };
            let what = if count == 1 { one } else { many };
            needs.push(Need { count: format!("{count}{more}"), what, href: href.to_owned(), tone });
        }
    }
    Ok(needs)
}

/// Returns the state of the CAs' publications and of the key service, and the share of certificates ready for short lifetimes.
async fn health(session: &Session, summary: &Value) -> Result<Vec<Need>, Failure> {
    let mut health = Vec::new();
    if let Some(publications) = session.api.get_if_allowed("/api/v1/publications").await? {
        health.extend(published(&publications));
        health.extend(oldest_crl(&publications, session.now));
    }
    if let Some(nodes) = session.api.get_if_allowed(NODES).await? {
        health.extend(key_service(&nodes));
    }
    health.extend(short_lived_share(summary));
    Ok(health)
}

/// Returns the age of the oldest CRL. Only the newest CRL of each CA and part counts.
fn oldest_crl(publications: &Value, now: jiff::Timestamp) -> Option<Need> {
    let crls = json::items(publications).iter().flat_map(|one| json::list(one, "/crls"));
    let oldest = crls.map(|crl| json::text(crl, "/this_update")).filter(|time| !time.is_empty()).min()?;
    Some(Need {
        count: format::distance(oldest, now),
        what: "the oldest CRL was created",
        href: "/console/publications".to_owned(),
        tone: Tone::Calm,
    })
}

/// Returns the nodes of the key service with a recent heartbeat, and the sites that have one.
fn key_service(nodes: &Value) -> Vec<Need> {
    let all = json::items(nodes);
    if all.is_empty() {
        return Vec::new();
    }
    let more = if json::text(nodes, "/next").is_empty() { "" } else { "+" };
    let present: Vec<&Value> = all.iter().filter(|node| json::flag(node, "/present")).collect();
    let sites = |nodes: &mut dyn Iterator<Item = &Value>| {
        nodes
            .map(|node| json::text(node, "/site").to_owned())
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    let counts = [
        ("key nodes are present", present.len(), all.len(), "/console/key-nodes"),
        (
            "key sites have a present node",
            sites(&mut present.iter().copied()),
            sites(&mut all.iter()),
            "/console/keys",
        ),
    ];
    let need = |(what, good, of, href): (&'static str, usize, usize, &str)| Need {
        count: format!("{good} of {of}{more}"),
        what,
        href: href.to_owned(),
        tone: if good == of { Tone::Good } else { Tone::Bad },
    };
    counts.into_iter().map(need).collect()
}

/// Returns one entry for CRLs and one for OCSP responders. Each contains the number of publications that are current.
fn published(publications: &Value) -> Vec<Need> {
    let authorities = json::items(publications);
    let crls: Vec<&Value> = authorities.iter().flat_map(|one| json::list(one, "/crls")).collect();
    let ocsp: Vec<&Value> =
        authorities.iter().filter_map(|one| one.pointer("/ocsp")).filter(|one| one.is_object()).collect();
    let is_current =
        |one: &&&Value| json::text(one, "/state") == "current" && json::number(one, "/failures") == 0;
    let need = |what, all: &[&Value]| {
        let current = all.iter().filter(is_current).count();
        let tone = if current == all.len() { Tone::Good } else { Tone::Bad };
        let count = format!("{current} of {}", all.len());
        Need { count, what, href: "/console/authorities".to_owned(), tone }
    };
    let parts = [("CRLs are current", crls), ("OCSP responders are current", ocsp)];
    parts.into_iter().filter(|(_, all)| !all.is_empty()).map(|(what, all)| need(what, &all)).collect()
}

/// Returns the share of certificates whose profile issues for at most 47 days.
fn short_lived_share(summary: &Value) -> Option<Need> {
    let (all, short) = (json::number(summary, "/certificates"), json::number(summary, "/short_lived"));
    let percent = (short * 100).checked_div(all)?;
    Some(Need {
        count: format!("{percent} %"),
        what: "of certificates have a profile of at most 47 days",
        href: "/console/profiles".to_owned(),
        tone: if short == all { Tone::Good } else { Tone::Warn },
    })
}

fn states(summary: &Value) -> Vec<(String, String)> {
    let states = summary.pointer("/statuses").and_then(Value::as_object);
    let counted = states.into_iter().flatten().filter_map(|(name, count)| Some((name, count.as_i64()?)));
    counted
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.clone(), format::number(count)))
        .collect()
}

fn days(session: &Session, summary: &Value) -> Vec<(String, i64)> {
    let day = |after| format::day(session.now, after);
    (0..DAYS).map(|after| (day(after), json::number(summary, &format!("/by_day/{}", day(after))))).collect()
}

/// Returns issued, renewed and failed certificates by hour.
fn hours(series: &Value) -> Vec<(String, u64, u64, u64)> {
    let Ok(from) = json::text(series, "/from").parse::<jiff::Timestamp>() else { return Vec::new() };
    let counts = |name: &str| -> Vec<u64> {
        let found = json::list(series, "/series").iter().find(|one| json::text(one, "/name") == name);
        found
            .map(|one| json::list(one, "/counts").iter().filter_map(Value::as_u64).collect())
            .unwrap_or_default()
    };
    let (issued, renewed, failed) = (counts("issued"), counts("renewed"), counts("failed"));
    let at = |index: usize| {
        let hours = i64::try_from(index).unwrap_or_default();
        from.checked_add(jiff::Span::new().hours(hours)).unwrap_or(from).to_string()
    };
    let of = |counts: &[u64], index: usize| counts.get(index).copied().unwrap_or_default();
    (0..issued.len())
        .map(|index| (at(index), of(&issued, index), of(&renewed, index), of(&failed, index)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readiness_is_the_share_of_certificates_with_short_lifetimes() {
        let need = short_lived_share(&json!({ "certificates": 4, "short_lived": 3 })).unwrap();
        assert_eq!((need.count.as_str(), need.tone), ("75 %", Tone::Warn));
        assert!(short_lived_share(&json!({ "certificates": 0, "short_lived": 0 })).is_none());
    }

    #[test]
    fn absent_key_nodes_and_their_sites_are_shown_in_the_overview() {
        let node = |site: &str, present: bool| json!({ "site": site, "present": present });
        let nodes = json!({ "items": [node("fra", true), node("fra", false), node("par", false)] });
        let counts: Vec<_> = key_service(&nodes).into_iter().map(|need| (need.count, need.tone)).collect();
        assert_eq!(counts, [("1 of 3".to_owned(), Tone::Bad), ("1 of 2".to_owned(), Tone::Bad)]);
        assert!(key_service(&json!({ "items": [] })).is_empty());
    }

    #[test]
    fn age_of_the_oldest_crl_is_shown_in_the_overview() {
        let crl = |time: &str| json!({ "this_update": time });
        let all = json!({ "items": [{ "crls": [crl("2026-11-29T10:00:00Z"), crl("2026-11-29T08:00:00Z")] }, { "crls": [{}] }] });
        let now = "2026-11-29T12:00:00Z".parse().unwrap();
        assert_eq!(oldest_crl(&all, now).unwrap().count, "4 hours ago");
        assert!(oldest_crl(&json!({ "items": [] }), now).is_none());
    }

    #[test]
    fn failed_crl_publications_are_shown_in_the_overview() {
        let one = json!({"items": [{"crls": [{"state": "current", "failures": 0}, {"state": "current", "failures": 2}], "ocsp": null}]});
        let needs = published(&one);
        assert_eq!((needs.len(), needs[0].count.as_str(), needs[0].tone), (1, "1 of 2", Tone::Bad));
    }
}
