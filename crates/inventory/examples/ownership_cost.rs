//! Benchmark: cost of assigning owners to a hundred thousand endpoints by a thousand ownership rules, in memory.
//!
//! `cargo run --release -p inventory --example ownership_cost [RULES] [ENDPOINTS]`. This is the worst case: none of the first rules
//! matches, so each endpoint is compared with all rules. In a second run, a rule in the middle matches half of the endpoints.

use std::error::Error;
use std::time::Instant;

use inventory::ownership::{Assignment, Candidate, Conditions, Rule, RuleConditions, Rules, TagKeys};
use uuid::Uuid;

fn main() -> Result<(), Box<dyn Error>> {
    let mut given = std::env::args().skip(1).map(|number| number.parse::<usize>());
    let rules = given.next().transpose()?.unwrap_or(1_000);
    let endpoints = given.next().transpose()?.unwrap_or(100_000);
    let candidates: Vec<Candidate> = (0..endpoints).map(candidate).collect();
    for (kind, conditions) in [
        (
            "host",
            conditions(|n| Conditions { host: Some(format!("*.t{n}.pay.example")), ..Conditions::default() }),
        ),
        (
            "name",
            conditions(|n| Conditions { name: Some(format!("*.t{n}.pay.example")), ..Conditions::default() }),
        ),
        (
            "network",
            conditions(|n| Conditions {
                network: Some(format!("10.{}.{}.0/24", n / 256, n % 256)),
                ..Conditions::default()
            }),
        ),
        ("tag", conditions(|n| Conditions { tag: Some(format!("team=t{n}")), ..Conditions::default() })),
    ] {
        let none = Rules::new((0..rules).map(|n| rule(n, &conditions(n))).collect::<Result<_, _>>()?);
        measure(kind, "none matches", &none, &candidates);
        let half = Conditions { host: Some("*.even.example".to_owned()), ..Conditions::default() };
        let middle = |n: usize| if n == rules / 2 { half.clone() } else { conditions(n) };
        let some = Rules::new((0..rules).map(|n| rule(n, &middle(n))).collect::<Result<_, _>>()?);
        measure(kind, "half by the middle one", &some, &candidates);
    }
    Ok(())
}

fn conditions(of: impl Fn(usize) -> Conditions + 'static) -> Box<dyn Fn(usize) -> Conditions> {
    Box::new(of)
}

fn rule(number: usize, conditions: &Conditions) -> Result<Rule, Box<dyn Error>> {
    Ok(Rule {
        id: Uuid::nil(),
        name: format!("r{number}"),
        position: u32::try_from(number)?,
        when: RuleConditions::parse(conditions)?,
        assign: Assignment { team: Some(format!("t{number}")), ..Assignment::default() },
        from_tags: TagKeys::default(),
    })
}

/// Returns a typical endpoint: three names, two tags.
fn candidate(number: usize) -> Candidate {
    let parity = if number.is_multiple_of(2) { "even" } else { "odd" };
    let host = format!("www{number}.shop.{parity}.example");
    Candidate {
        host: host.clone(),
        server_name: host.clone(),
        address: Some([192, 168, (number / 256 % 256) as u8, (number % 256) as u8].into()),
        names: vec![host, format!("api{number}.shop.{parity}.example"), format!("*.shop.{parity}.example")],
        issuer: "CN=R11, O=Let's Encrypt, C=US".to_owned(),
        protocol: "tls".to_owned(),
        group: "prod".to_owned(),
        tags: vec![
            ("team".to_owned(), "web".to_owned()),
            ("environment".to_owned(), "production".to_owned()),
        ],
    }
}

fn measure(kind: &str, what: &str, rules: &Rules, candidates: &[Candidate]) {
    let began = Instant::now();
    let owned = candidates.iter().filter(|candidate| rules.of(candidate).is_some()).count();
    let took = began.elapsed();
    let each = took.as_secs_f64() * 1e6 / candidates.len().max(1) as f64;
    println!("{kind:8} {what:24} {owned:7} owned  {took:>10.3?}  {each:8.2} us an endpoint");
}
