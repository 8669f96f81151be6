//! The first page: what needs a person now, and how the estate is.

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use crate::api::Api;
use crate::cell::Tone;
use crate::failure::Failure;
use crate::shell::Page;
use crate::visit::Visit;
use crate::{format, json};

/// How many days ahead endings are shown.
const DAYS: i64 = 90;

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/console", get(page))
}

/// A number that a person may have to do something about, with the page that lists what is counted.
struct Need {
    count: String,
    what: &'static str,
    href: String,
    tone: Tone,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    needs: Vec<Need>,
    checked: String,
    certificates: String,
    states: Vec<(String, String)>,
    days: Vec<(String, i64)>,
    hours: Vec<(String, u64, u64, u64)>,
}

async fn page(visit: Visit) -> Result<Response, Failure> {
    let summary = visit.api.get_if_allowed("/api/v1/certificates/summary").await?.unwrap_or_default();
    let series = visit.api.get_if_allowed("/api/v1/series?names=issued,renewed,failed&step=hour").await?;
    let overview = Overview {
        needs: needs(&visit, &summary),
        checked: format::minute(&visit.now.to_string()),
        certificates: format::number(json::number(&summary, "/certificates")),
        states: states(&summary),
        days: days(&visit, &summary),
        hours: series.as_ref().map(hours).unwrap_or_default(),
    };
    Page::new(&visit, "Overview")
        .command("bulla cert summary")
        .reads("/api/v1/certificates/summary")
        .reads("/api/v1/series?names=issued,renewed,failed&step=hour")
        .with_charts()
        .show(&overview)
}

fn needs(visit: &Visit, summary: &Value) -> Vec<Need> {
    let now = visit.now.strftime("%FT%TZ").to_string();
    let week = format!("{}T00:00:00Z", format::day(visit.now, 7));
    let list = "/console/certificates";
    let all = [
        ("expired", "/expired", Tone::Bad, format!("{list}?expires_before={now}")),
        (
            "end within 7 days",
            "/expiring_days/7",
            Tone::Warn,
            format!("{list}?expires_after={now}&expires_before={week}"),
        ),
        ("failing renewals", "/statuses/failed", Tone::Bad, format!("{list}?status=failed")),
        ("not in place at every target", "/not_deployed", Tone::Bad, "/console/alerts".to_owned()),
        ("wait for approval", "/statuses/awaiting_approval", Tone::Warn, "/console/approvals".to_owned()),
    ];
    let counted =
        all.into_iter().map(|(what, member, tone, href)| (json::number(summary, member), what, tone, href));
    let open = counted.filter(|(count, ..)| *count > 0);
    open.map(|(count, what, tone, href)| Need { count: format::number(count), what, href, tone }).collect()
}

fn states(summary: &Value) -> Vec<(String, String)> {
    let states = summary.pointer("/statuses").and_then(Value::as_object);
    let counted = states.into_iter().flatten().filter_map(|(name, count)| Some((name, count.as_i64()?)));
    counted
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.clone(), format::number(count)))
        .collect()
}

fn days(visit: &Visit, summary: &Value) -> Vec<(String, i64)> {
    let day = |after| format::day(visit.now, after);
    (0..DAYS).map(|after| (day(after), json::number(summary, &format!("/by_day/{}", day(after))))).collect()
}

/// Issued, renewed and failed by the hour.
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
