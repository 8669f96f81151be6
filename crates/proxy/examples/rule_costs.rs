//! Benchmark: cost of finding the rules for a request: `cargo run --release -p proxy --example rule_costs`.

use std::hint::black_box;
use std::time::Instant;

use proxy::requests::{RequestRules, RuleText};
use x509::HostOrIp;

/// Lookups per measurement.
const LOOKUPS: u32 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for rules in [1, 10, 100, 1_000, 10_000] {
        let by_host = |number: u32| RuleText {
            host: vec![format!("h{number}.example"), format!("*.b{number}.example")],
            path: vec![format!("/v{number}/*"), "/static/*.js".to_owned()],
            record: true,
            ..RuleText::default()
        };
        let compiled = RequestRules::compile(&(0..rules).map(by_host).collect::<Vec<_>>())?;
        for (what, host, path) in [
            ("none met", "www.other.example", "/a/b/c"),
            ("one met, by name", "h0.example", "/v0/users/7"),
            ("one met, below a name", "x.y.b0.example", "/static/a.js"),
        ] {
            measure(&compiled, LOOKUPS, what, host, path);
        }
        // The worst case: each request is compared with each rule. The rule with the long path is also compared at its end and between its
        // wildcards.
        let long = format!("/{}", "a/".repeat(4_095));
        let lookups = LOOKUPS / 100 / rules.min(100);
        for (what, pattern) in [("of any host, by end", "*.x"), ("of any host, two stars", "*/b*/")] {
            let by_end = |number: u32| RuleText {
                path: vec![pattern.replace(['x', 'b'], &format!("x{number}"))],
                record: true,
                ..RuleText::default()
            };
            let compiled = RequestRules::compile(&(0..rules).map(by_end).collect::<Vec<_>>())?;
            measure(&compiled, lookups, what, "www.other.example", &long);
        }
    }
    Ok(())
}

fn measure(rules: &RequestRules, lookups: u32, what: &str, host: &str, path: &str) {
    let Ok(host) = HostOrIp::parse(host) else { return };
    let began = Instant::now();
    for _ in 0..lookups {
        black_box(rules.met(black_box(&host), black_box(path)));
    }
    let each = began.elapsed().as_nanos() / u128::from(lookups);
    println!("{:>6} rules, {what:<22} {:>4} octets of path {each:>9} ns", rules.len(), path.len());
}
