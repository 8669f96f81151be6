//! Words of the documentation: it must contain the terms that readers search for, and no idioms that they may not know.

use std::path::{Path, PathBuf};

/// Standard terms that a search of README and docs must find, regardless of case.
const TERMS: &[&str] = &[
    "alert",
    "allowlist",
    "approval",
    "audit log",
    "backoff",
    "backup",
    "break-glass",
    "certificate transparency",
    "connection pool",
    "credential injection",
    "CRL",
    "cross-sign",
    "default deny",
    "discovery",
    "docker",
    "egress",
    "envelope encryption",
    "failover",
    "forward proxy",
    "graceful shutdown",
    "gRPC",
    "health check",
    "high availability",
    "HSM",
    "HTTP/2",
    "idempotency",
    "intermediate",
    "key ceremony",
    "Keyless SSL",
    "KMS",
    "Kubernetes",
    "leader",
    "load balancer",
    "man in the middle",
    "multi-tenancy",
    "mutual TLS",
    "name constraint",
    "OCSP",
    "OIDC",
    "OpenTelemetry",
    "PagerDuty",
    "pagination",
    "PKCS#11",
    "post-quantum",
    "Prometheus",
    "PROXY protocol",
    "quota",
    "rate limit",
    "RBAC",
    "restore",
    "retry",
    "reverse proxy",
    "role-based access control",
    "rollback",
    "rotation",
    "sandbox",
    "seccomp",
    "single flight",
    "single sign-on",
    "Slack",
    "SPIFFE",
    "stapling",
    "STARTTLS",
    "systemd",
    "TLS inspection",
    "TLS interception",
    "TLS termination",
    "TPM",
    "transparent proxy",
    "troubleshooting",
    "trust anchor",
    "two-person rule",
    "upgrade",
    "webhook",
    "WebSocket",
    "witness",
];

/// Idioms that readers may not know, and their replacements.
const IDIOMS: &[(&str, &str)] = &[
    ("act outside", "do what is not permitted"),
    ("are told", "get, receive"),
    ("asked again", "retried"),
    ("asked for by", "requested by"),
    ("by and by", "gradually"),
    ("by chance", "at random"),
    ("comes back", "responds again, is restored"),
    ("for ever", "permanently, without a limit"),
    ("gave up", "stopped, timed out"),
    ("give up", "stop, time out"),
    ("gives up", "stops, times out"),
    ("has decided", "there is a decision"),
    ("is told", "gets, receives; the error says"),
    ("laden", "under load"),
    ("let go", "released, closed"),
    ("let through", "allowed, passed through"),
    ("lets go", "releases, closes"),
    ("look into the TLS", "intercept TLS"),
    ("looks into the TLS", "intercepts TLS"),
    ("made up for", "failover"),
    ("nobody", "no person, no client, no process"),
    ("octets", "bytes"),
    ("own authority", "own CA"),
    ("says no", "denies, rejects"),
    ("stand for", "mean, match, are replaced by"),
    ("stands for", "means, matches, is replaced by"),
    ("taken back", "revoked, deleted"),
    ("that of", "name the thing again"),
    ("those of", "name the things again"),
    ("told to", "must"),
    ("went away", "closed the connection, stopped"),
    ("who answers for", "owner"),
    ("whoever", "any person, any client"),
    ("whom", "name the person or the thing"),
];

/// README, CHANGELOG, documentation, runbooks.
fn pages() -> Vec<(PathBuf, String)> {
    let root = crate::root();
    let mut pages = crate::files_below(&root.join("docs"), &["md"]);
    pages.extend(
        ["README.md", "CHANGELOG.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
            .map(|name| root.join(name)),
    );
    pages.into_iter().map(|page| (page.clone(), crate::read(&page))).collect()
}

#[test]
fn docs_contain_the_standard_terms() {
    let text = pages().iter().map(|(_, text)| text.to_lowercase()).collect::<String>();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let missing: Vec<_> = TERMS.iter().filter(|term| !text.contains(&term.to_lowercase())).collect();
    assert!(
        missing.is_empty(),
        "no page has {missing:?}: use the term where the thing is explained, or add it to docs/glossary.md"
    );
}

/// Returns the idioms in a line. Names in code are exempt.
fn idioms(line: &str) -> impl Iterator<Item = String> {
    let line = without_code(line).to_lowercase();
    let found = IDIOMS.iter().filter(move |(idiom, _)| crate::source::names(&line, idiom));
    found.map(|(idiom, plain)| format!("{idiom:?}: write {plain}"))
}

/// Returns the idioms in the lines of a file that are prose.
fn idioms_of(file: &Path, text: &str, is_prose: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = text.lines().enumerate().filter(|(_, line)| is_prose(line));
    let found = lines.flat_map(|(at, line)| idioms(line).map(move |idiom| (at + 1, idiom)));
    found.map(|(line, idiom)| format!("{}:{line}: {idiom}", crate::shown(file))).collect()
}

#[test]
fn docs_contain_no_idioms() {
    let mut found = Vec::new();
    for (page, text) in pages() {
        // Rows of the glossary in CONTRIBUTING contain both.
        let has_glossary = page.ends_with("CONTRIBUTING.md");
        found.extend(idioms_of(&page, &text, |line| !(has_glossary && line.starts_with('|'))));
    }
    crate::assert_none(&found);
}

/// Doc comments are the text of the help, of the OpenAPI description and of the reference pages.
#[test]
fn doc_comments_and_errors_contain_no_idioms() {
    let is_prose = |line: &str| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("//!") || line.contains("#[error(\"")
    };
    let root = crate::root();
    let (mut found, mut files) = (Vec::new(), 0);
    for file in ["crates", "xtask"].iter().flat_map(|folder| crate::files_below(&root.join(folder), &["rs"]))
    {
        files += 1;
        found.extend(idioms_of(&file, &crate::read(&file), is_prose));
    }
    assert!(files > 1_000, "only {files} files were found");
    crate::assert_none(&found);
}

#[test]
fn idioms_are_found_outside_of_code_and_as_words() {
    let found = |line: &str| idioms(line).collect::<Vec<_>>();
    assert_eq!(found("The settings are those of the server."), ["\"those of\": write name the things again"]);
    assert_eq!(found("Nobody may, `whom` may."), ["\"nobody\": write no person, no client, no process"]);
    assert_eq!(found("Whomever and octetstream"), [""; 0]);
}

/// Returns a line without the text between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}
