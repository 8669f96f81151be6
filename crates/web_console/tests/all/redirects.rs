//! No URL parameter or form field causes a redirect to another site.

use crate::hostile_api::{CSRF, Console, all_fields, all_parameters};

const ELSEWHERE: &[&str] = &[
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example/",
    "/console/..//evil.example",
    "/consoleevil",
    "javascript:alert(1)",
];

fn own(location: &str) -> bool {
    let path = location.split(['?', '#']).next().unwrap_or_default();
    let own = path == "/console" || path.starts_with("/console/");
    let step = path.split('/').any(|part| part == ".." || part == ".");
    own && !step && !path.contains("//") && !path.contains('\\')
}

#[tokio::test]
async fn redirects_stay_within_the_console() {
    let console = Console::with_short_items(1);
    let mut redirects = 0;
    for elsewhere in &ELSEWHERE[..2] {
        let query = all_parameters(elsewhere);
        let mut fields = all_fields(elsewhere);
        fields.push(("csrf", CSRF));
        for path in console.paths() {
            let path = format!("{}?{query}", path.replace(['{', '}'], ""));
            for answer in [console.get(&path).await, console.post(&path, &fields).await] {
                if answer.status.is_redirection() {
                    let location = answer.header("location");
                    assert!(own(location), "{path} with {elsewhere} leads to {location}");
                    redirects += 1;
                }
            }
        }
    }
    assert!(redirects > 50, "{redirects}");
}

#[tokio::test]
async fn sign_in_redirects_to_the_requested_console_page() {
    let console = Console::new();
    let signed_in = async |to: &'static str| {
        let answer = console.post("/console/sign-in", &[("code", "1"), ("to", to)]).await;
        answer.header("location").to_owned()
    };
    assert_eq!(signed_in("/console/jobs?state=failed").await, "/console/jobs?state=failed");
    for elsewhere in ELSEWHERE {
        assert_eq!(signed_in(elsewhere).await, "/console", "{elsewhere}");
    }
}

#[tokio::test]
async fn address_of_a_form_explains_itself_to_a_browser() {
    let answer = Console::new().get("/console/audit/verify").await;
    assert_eq!(answer.status, 405);
    assert!(answer.body.contains("a form is sent to it"), "{}", answer.body);
}

#[tokio::test]
async fn addresses_without_a_page_of_their_own_lead_to_the_overview() {
    let console = Console::new();
    for path in ["/", "/console/"] {
        assert_eq!(console.get(path).await.header("location"), "/console", "{path}");
    }
}

#[tokio::test]
async fn address_above_a_page_leads_to_a_page() {
    /// Folders of files and of actions, which have no list.
    const NO_LIST: [&str; 2] = ["/console/export", "/console/credentials/permission"];
    let console = Console::with_short_items(1);
    let mut above: Vec<String> = Vec::new();
    for path in console.paths() {
        let mut parts: Vec<&str> = path.split('/').collect();
        while parts.len() > 3 {
            parts.pop();
            above.push(parts.join("/"));
        }
    }
    above.sort();
    above.dedup();
    let mut faults = Vec::new();
    for path in above.iter().filter(|path| !path.contains('{') && !NO_LIST.contains(&path.as_str())) {
        let status = console.get(path).await.status;
        if !status.is_success() && !status.is_redirection() {
            faults.push(format!("{path}: {status}"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
