//! Fault and abuse battery for the built binary: `cargo xtask ci abuse [BINARY]`. Each attack is bounded in number and stays on
//! loopback. The verdicts use counts, not times. The battery prints a table. It fails after the last attack if any attack
//! succeeded.

mod client;
mod faults;
mod floods;
mod slow;

use super::House;
use client::Tls;

/// The result of an attack.
struct Outcome {
    attack: &'static str,
    /// The attack, and how often it was run.
    done: String,
    /// The required result.
    bound: String,
    /// The measured result.
    counted: String,
    held: bool,
}

/// A server with low limits, and the credentials to send requests to it.
struct Fixture {
    house: House,
    token: String,
    credentials: u16,
}

impl Fixture {
    fn new() -> Self {
        let mut house = House::prepared("", None);
        for (name, value) in [
            ("BULLA_SERVER_HEAD_TIMEOUT_S", "10"),
            ("BULLA_SERVER_READ_TIMEOUT_S", "10"),
            ("BULLA_SERVER_CONNECTIONS_MAX", "64"),
            ("BULLA_SERVER_CONNECTIONS_PER_ADDRESS_MAX", "16"),
            ("BULLA_SERVER_ANSWER_MEMORY_MB", "16"),
        ] {
            house.environment(name, value);
        }
        house.start();
        let read = |name: &str| std::fs::read_to_string(house.path("data").join(name)).unwrap();
        let url = read("credentials.url");
        let credentials = url.trim().trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
        Self { token: read("admin.token").trim().to_owned(), credentials, house }
    }

    /// Returns the server's peak and current resident memory, in KiB.
    fn memory_kib(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.house.process())).unwrap();
        let of = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (of("VmHWM:"), of("VmRSS:"))
    }

    /// Sends `requests` requests to each listener from another client. Returns the number of normal responses.
    fn answered(&self, requests: usize) -> usize {
        let listeners = [(self.house.port, "/healthz", 200), (self.credentials, "/info", 200)];
        let one = |(port, path, status): (u16, &str, u16)| {
            Tls::connect(9, port, &[b"http/1.1"])
                .and_then(|mut tls| tls.get(path))
                .is_ok_and(|code| code == status)
        };
        (0..requests).filter(|_| listeners.into_iter().all(one)).count()
    }
}

fn show(outcomes: &[Outcome]) {
    println!("\n| attack | what was done | bound | counted | held |\n| --- | --- | --- | --- | --- |");
    for Outcome { attack, done, bound, counted, held } in outcomes {
        let held = if *held { "yes" } else { "NO" };
        println!("| {attack} | {done} | {bound} | {counted} | {held} |");
    }
}

#[test]
#[ignore = "a step of its own: cargo xtask ci abuse"]
fn abuse_battery_passes() {
    let fixture = Fixture::new();
    let mut outcomes = vec![
        slow::heads(&fixture),
        slow::bodies(&fixture),
        floods::crowd(&fixture),
        floods::resets(&fixture),
        floods::gzip(&fixture),
        floods::deep_json(&fixture),
        floods::nonces(&fixture),
        slow::readers(&fixture),
    ];
    drop(fixture);
    outcomes.push(faults::full_disk());
    outcomes.push(faults::clock());
    outcomes.push(faults::promotion());
    show(&outcomes);
    let through: Vec<&str> =
        outcomes.iter().filter(|outcome| !outcome.held).map(|outcome| outcome.attack).collect();
    assert!(through.is_empty(), "went through: {through:?}");
}
