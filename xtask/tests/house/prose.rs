//! The words of the documentation: what readers search for is there, and idioms that they do not know are not.

use std::path::PathBuf;

/// Terms of the field that a search of README and docs must find. Case does not count.
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

/// Idioms that readers do not know, and what we write in their place.
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

/// README, documentation, runbooks. The CHANGELOG says what was, in the words of then.
fn pages() -> Vec<(PathBuf, String)> {
    let root = crate::root();
    let mut pages = crate::files_below(&root.join("docs"), &["md"]);
    pages.extend(
        ["README.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)),
    );
    pages.into_iter().map(|page| (page.clone(), crate::read(&page))).collect()
}

#[test]
fn the_terms_of_the_field_are_found() {
    let text = pages().iter().map(|(_, text)| text.to_lowercase()).collect::<String>();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let missing: Vec<_> = TERMS.iter().filter(|term| !text.contains(&term.to_lowercase())).collect();
    assert!(
        missing.is_empty(),
        "no page has {missing:?}: use the term where the thing is explained, or add it to docs/glossary.md"
    );
}

#[test]
fn idioms_have_a_plain_word() {
    let mut found = Vec::new();
    for (page, text) in pages() {
        for (number, line) in text.lines().enumerate() {
            // Rows of the glossary in CONTRIBUTING have both; names in code are what they are.
            let is_glossary = page.ends_with("CONTRIBUTING.md") && line.starts_with('|');
            let line = if is_glossary { String::new() } else { without_code(line).to_lowercase() };
            for (idiom, plain) in IDIOMS.iter().filter(|(idiom, _)| crate::source::names(&line, idiom)) {
                found.push(format!("{}:{}: {idiom:?}: write {plain}", crate::shown(&page), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A line without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}
