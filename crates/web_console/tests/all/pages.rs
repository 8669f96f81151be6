//! Markup in API responses and in the URL is escaped.

use crate::hostile_api::{Answer, CSRF, Console, MARKUP, all_fields, all_parameters, endpoint};

/// The escaped markup.
const ESCAPED: &str = "&#60;script&#62;";

/// Pages that show no text of the hostile API: fixed forms, numbers, and lists of objects in one fixed state.
const WITHOUT_DATA: &[&str] = &[
    "/console",
    "/console/alert-channels/new",
    "/console/alert-rules/new",
    "/console/authorities/import",
    "/console/authorities/new",
    "/console/blocked-keys/new",
    "/console/confirm",
    "/console/issuers/new",
    "/console/ownership-rules/{id}/remove",
    "/console/policies/new",
    "/console/profiles/new",
    "/console/settings/master-key",
    "/console/sign-in",
    "/console/watches/new",
];

/// An ID.
const ISSUER: &str = "01930000-0000-7000-8000-000000000000";

/// Returns the URL of a page with markup in every parameter.
fn address(path: &str) -> String {
    // The page of an issuer with a name instead of an ID is a redirect.
    let is_identity = path.starts_with("/console/issuers/");
    let segment = if is_identity { ISSUER.to_owned() } else { api::path::segment(MARKUP) };
    let filled = path.split('/').map(|part| if part.starts_with('{') { segment.as_str() } else { part });
    let path = filled.collect::<Vec<_>>().join("/");
    let endpoint = endpoint();
    let member = |name: &str| api::path::segment(endpoint[name].as_str().unwrap());
    let endpoint = format!(
        "host={}&port=443&protocol={}&server_name={}&address={}",
        member("host"),
        member("protocol"),
        member("server_name"),
        member("address")
    );
    let query = match path.as_str() {
        "/console/endpoints/one" => endpoint,
        "/console/endpoints/claim" => format!("endpoint={}", api::path::segment(&endpoint)),
        "/console/blocked-keys/new" => format!("key={}", "ab".repeat(32)),
        "/console/audit/event" => "at=2026-11-29T01:00:00Z&shard=7&sequence=7".to_owned(),
        _ => all_parameters(MARKUP),
    };
    format!("{path}?{query}")
}

fn check(path: &str, answer: &Answer) {
    if !answer.is_html() {
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        return;
    }
    let body = &answer.body;
    assert!(!body.contains("<script>x"), "{path} has markup of the API:\n{}", around(body, "<script>x"));
    assert!(!body.contains("'\""), "{path} has a quote of the API:\n{}", around(body, "'\""));
    for href in body.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default()) {
        let own = ["/console", "/api/v1/", "#"].iter().any(|begin| href.starts_with(begin));
        assert!(own, "{path} has a link to {href}");
    }
    assert_eq!(answer.header("x-frame-options"), "DENY", "{path}");
    let policy = answer.header("content-security-policy");
    assert!(
        policy.contains("script-src 'self'") && policy.contains("frame-ancestors 'none'"),
        "{path}: {policy}"
    );
}

fn around<'a>(body: &'a str, text: &str) -> &'a str {
    let at = body.find(text).unwrap_or_default();
    let begin = (0..=at.saturating_sub(200)).rev().find(|at| body.is_char_boundary(*at)).unwrap_or_default();
    body[begin..].split_at_checked(400).map_or(&body[begin..], |(text, _)| text)
}

#[tokio::test]
async fn markup_from_the_api_is_escaped_on_every_page() {
    let console = Console::new();
    let mut silent = Vec::new();
    for path in console.paths() {
        let answer = console.get(&address(&path)).await;
        if answer.status == http::StatusCode::METHOD_NOT_ALLOWED {
            continue;
        }
        check(&path, &answer);
        let quiet = answer.is_html() && !answer.body.contains(ESCAPED);
        if quiet && !WITHOUT_DATA.contains(&path.as_str()) {
            silent.push(format!("{path} ({})", answer.status));
        }
    }
    assert!(silent.is_empty(), "these show no member of the API, so they prove nothing: {silent:#?}");
}

#[tokio::test]
async fn markup_is_escaped_in_every_form_response() {
    let console = Console::new();
    let mut fields = all_fields(MARKUP);
    fields.push(("csrf", CSRF));
    let mut shown = 0;
    for path in console.paths() {
        let answer = console.post(&address(&path), &fields).await;
        check(&path, &answer);
        shown += usize::from(answer.is_html() && answer.body.contains(ESCAPED));
    }
    assert!(shown > 10, "{shown} pages show what the form or the API says");
}

/// Returns the API requests that a page sends.
async fn calls(console: &Console, path: &str) -> Vec<String> {
    console.seen();
    let answer = console.get(&address(path)).await;
    assert!(answer.status.as_u16() < 500, "{path}: {} {}", answer.status, answer.body);
    console.seen().into_iter().map(|seen| seen.path).collect()
}

#[tokio::test]
async fn pages_send_a_constant_number_of_api_requests() {
    let (few, many) = (Console::with_short_items(1), Console::with_short_items(5));
    let mut most = (0, String::new());
    for path in few.paths() {
        // Exports request every page of their list.
        if path.starts_with("/console/export/") {
            continue;
        }
        let (with_few, with_many) = (calls(&few, &path).await, calls(&many, &path).await);
        assert_eq!(with_few.len(), with_many.len(), "{path}: {with_few:#?} {with_many:#?}");
        most = most.max((with_few.len(), path));
    }
    assert!(most.0 <= 10, "{} asks {} times", most.1, most.0);
    assert_eq!(calls(&few, "/console/certificates").await.len(), 2, "the list and its facets");
}

#[tokio::test]
async fn sections_of_a_watch_that_a_run_changes_are_live() {
    let answer = Console::with_short_items(1).get(&format!("/console/watches/{ISSUER}")).await;
    for section in ["run", "last", "settings"] {
        let live = format!("<section id=\"{section}\" data-live=\"watch.\">");
        assert!(answer.body.contains(&live), "{live}: {}", answer.body);
    }
}
