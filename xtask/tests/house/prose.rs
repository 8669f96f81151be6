//! Words of the documentation: it must contain the terms that readers search for, and no idioms that they may not know.

use std::path::PathBuf;

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
    ("asked again", "retried"),
    ("by and by", "gradually"),
    ("by chance", "at random"),
    ("laden", "under load"),
    ("let through", "allowed, passed through"),
    ("look into the TLS", "intercept TLS"),
    ("looks into the TLS", "intercepts TLS"),
    ("made up for", "failover"),
    ("octets", "bytes"),
    ("own authority", "own CA"),
    ("taken back", "revoked, deleted"),
    ("who answers for", "owner"),
    ("whom it belongs", "owner, team"),
];

/// README, documentation, runbooks. The CHANGELOG is exempt, because it describes the past in the words of its time.
fn pages() -> Vec<(PathBuf, String)> {
    let root = crate::root();
    let mut pages = crate::files_below(&root.join("docs"), &["md"]);
    pages.extend(
        ["README.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)),
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

#[test]
fn docs_contain_no_idioms() {
    let mut found = Vec::new();
    for (page, text) in pages() {
        for (number, line) in text.lines().enumerate() {
            // Rows of the glossary in CONTRIBUTING contain both. Names in code are exempt.
            let is_glossary = page.ends_with("CONTRIBUTING.md") && line.starts_with('|');
            let line = if is_glossary { String::new() } else { without_code(line).to_lowercase() };
            for (idiom, plain) in IDIOMS.iter().filter(|(idiom, _)| crate::source::names(&line, idiom)) {
                found.push(format!("{}:{}: {idiom:?}: write {plain}", crate::shown(&page), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns a line without the text between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}
