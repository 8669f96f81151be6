//! What a look for rules costs: `cargo run --release -p intercept --example rule_costs`.

use std::hint::black_box;
use std::time::Instant;

use intercept::proxy::requests::{RequestRules, RuleText};

/// Looks of one measurement.
const LOOKS: u32 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for rules in [1, 10, 100, 1_000, 10_000] {
        let texts: Vec<RuleText> = (0..rules)
            .map(|number| RuleText {
                host: vec![format!("h{number}.example"), format!("*.b{number}.example")],
                path: vec![format!("/v{number}/*"), "/static/*.js".to_owned()],
                record: true,
                ..RuleText::default()
            })
            .collect();
        let compiled = RequestRules::compile(&texts)?;
        for (what, host, path) in [
            ("none met", "www.other.example", "/a/b/c"),
            ("one met, by name", "h0.example", "/v0/users/7"),
            ("one met, below a name", "x.y.b0.example", "/static/a.js"),
        ] {
            let began = Instant::now();
            for _ in 0..LOOKS {
                black_box(compiled.candidates(black_box(host), black_box(path)));
            }
            let each = began.elapsed().as_nanos() / u128::from(LOOKS);
            println!("{rules:>6} rules, {what:<22} {each:>6} ns");
        }
    }
    Ok(())
}
