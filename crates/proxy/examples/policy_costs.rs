//! Benchmark: processor time per policy decision: `cargo run --release -p proxy --example policy_costs`.

use std::collections::HashMap;
use std::hint::black_box;
use std::net::IpAddr;

use hyper::HeaderMap;
use proxy::policy::{
    Evidence, IdentityText, Phase, Policy, PolicyRequest, PolicyRuleText, PolicyText, Presented, RequestFacts,
};
use x509::HostOrIp;

/// Decisions per measurement.
const DECISIONS: u32 = 500_000;
/// Maximum processor time per decision.
const LIMIT_NS: u64 = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for size in [10, 1_000, 10_000] {
        let policy = Policy::compile(&text(size))?;
        let bare: HashMap<String, u32> =
            (0..size).map(|number| (format!("h{number}.example"), number)).collect();
        let hash = measure(|at| black_box(bare.get(black_box(&format_of(at, size)))).is_some());
        let text = measure(|at| black_box(format_of(at, size)).len() > 1);
        let hash = hash.saturating_sub(text).max(1);
        for (what, path, far) in [
            ("allowed", "/v1/users/7", false),
            ("by the last rule", "/other/7", false),
            ("denied", "/v1/users/7", true),
        ] {
            let hosts = hosts(size, far);
            let users: Vec<String> = (0..size).map(|number| format!("user-{number}")).collect();
            let headers = HeaderMap::new();
            let each = measure(|at| {
                let at = (at as usize * 7_919) % size as usize;
                decide(&policy, &users[at], &hosts[at], path, &headers)
            });
            println!(
                "{size:>6} rules and identities, {what:<16} {each:>6} ns, {:>5.1} times a hash lookup of {hash} ns{}",
                each as f64 / hash as f64,
                if each > LIMIT_NS { "  ABOVE THE LIMIT" } else { "" }
            );
        }
    }
    Ok(())
}

fn decide(policy: &Policy, user: &str, host: &HostOrIp, path: &str, headers: &HeaderMap) -> bool {
    let presented = Presented { evidence: Evidence::User(user), address: IpAddr::from([192, 0, 2, 1]) };
    let identity = policy.identify(&presented).map(AsRef::as_ref);
    let facts = RequestFacts { method: "GET", path, query: None, headers, body_bytes: Some(0) };
    let request = PolicyRequest { identity, host, port: 443, phase: Phase::Request(facts) };
    policy.decide(black_box(&request), 1_800_000_000).action.permits()
}

/// Returns a policy. Each identity may read its own host, each team has rules for a domain, and 1 in 10 rules is for all identities.
fn text(size: u32) -> PolicyText {
    let identities = (0..size).map(|number| IdentityText {
        name: format!("user-{number}"),
        users: vec![format!("user-{number}")],
        teams: vec![format!("team-{}", number % 100)],
        tags: vec![format!("tag-{}", number % 10)],
        ..IdentityText::default()
    });
    let rules = (0..size).map(|number| {
        let mut rule = PolicyRuleText {
            host: vec![format!("h{number}.example"), format!("*.d{number}.example")],
            method: vec!["GET".into(), "HEAD".into()],
            path: vec!["/v1/**".into(), "/static/*.js".into(), "/other/*".into()],
            ..PolicyRuleText::default()
        };
        match number % 10 {
            0 => {}
            1..=3 => rule.teams = vec![format!("team-{}", number % 100)],
            _ => rule.identities = vec![format!("user-{number}")],
        }
        rule
    });
    PolicyText { default: None, identities: identities.collect(), rules: rules.collect() }
}

fn hosts(size: u32, far: bool) -> Vec<HostOrIp> {
    let name = |number| if far { format!("a.b.c.other{number}.test") } else { format!("h{number}.example") };
    (0..size).filter_map(|number| HostOrIp::parse(&name(number)).ok()).collect()
}

fn format_of(at: u32, size: u32) -> String {
    format!("h{}.example", (at as usize * 7_919) % size as usize)
}

/// Returns the processor time of a run, ns.
fn measure(mut run: impl FnMut(u32) -> bool) -> u64 {
    let began = processor_time();
    for at in 0..DECISIONS {
        black_box(run(at));
    }
    processor_time().saturating_sub(began) / u64::from(DECISIONS)
}

/// Returns the processor time of this thread, ns. Other programs on the machine do not affect it.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}
