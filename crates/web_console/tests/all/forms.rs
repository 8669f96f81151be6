//! Forms that another site makes a browser submit.

use http::StatusCode;

use crate::hostile_api::{CSRF, Console, Seen, all_fields, form};

/// The sign-in form, for a browser without a session.
const SIGN_IN: &str = "/console/sign-in";

/// Returns the paths that accept forms.
async fn targets(console: &Console) -> Vec<String> {
    let mut targets = Vec::new();
    for path in console.paths().into_iter().filter(|path| path != SIGN_IN) {
        let path = path.replace(['{', '}'], "");
        if console.post(&path, &[]).await.status != StatusCode::METHOD_NOT_ALLOWED {
            targets.push(path);
        }
    }
    assert!(targets.len() > 70, "{targets:?}");
    console.seen();
    targets
}

#[tokio::test]
async fn forms_without_the_csrf_token_of_the_session_are_rejected() {
    let console = Console::with_short_items(1);
    for path in targets(&console).await {
        for token in [None, Some(""), Some("another-token"), Some("the-right-toke")] {
            let mut fields = all_fields("1");
            fields.extend(token.map(|token| ("csrf", token)));
            let answer = console.post(&path, &fields).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} with the token {token:?}");
            let seen = console.seen();
            assert!(seen.is_empty(), "{path} with the token {token:?} asks the API: {seen:?}");
        }
    }
}

#[tokio::test]
async fn cross_site_forms_are_rejected() {
    let console = Console::with_short_items(1);
    let mut paths = targets(&console).await;
    paths.push(SIGN_IN.to_owned());
    let mut fields = all_fields("1");
    fields.push(("csrf", CSRF));
    for path in paths {
        for site in ["cross-site", "same-site"] {
            let mut request = form(&path, &fields);
            request.headers_mut().insert("sec-fetch-site", site.parse().unwrap());
            let answer = console.send(request).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} from {site}");
            assert!(console.seen().is_empty(), "{path} from {site}");
        }
    }
}

#[tokio::test]
async fn form_csrf_token_is_forwarded_to_the_api() {
    let console = Console::with_short_items(1);
    let mut changes = 0;
    for path in targets(&console).await {
        let mut fields = all_fields("1");
        fields.push(("csrf", CSRF));
        console.post(&path, &fields).await;
        let unsafe_requests: Vec<Seen> =
            console.seen().into_iter().filter(|seen| seen.method != http::Method::GET).collect();
        let with_token = |seen: &&Seen| seen.csrf.as_deref() == Some(CSRF);
        let without = unsafe_requests.iter().find(|seen| !with_token(seen));
        assert!(without.is_none(), "{path} asks for {:?}", without.map(|seen| &seen.path));
        changes += unsafe_requests.len();
    }
    assert!(changes > 60, "{changes} changes reach the API");
}
