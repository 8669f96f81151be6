//! Benchmark: Concourse's access pattern with this client and with CredHub's unchanged Go library, against one `bulla`. 200 pipelines
//! read five secrets each every ten seconds: three of the pipeline and two of its team.
//!
//! ```console
//! $ cargo build --release
//! $ .ci/interop credhub                                            # builds credhub-lookups
//! $ cargo run --release -p client --example concourse -- target/release/bulla target/interop/bin/credhub-lookups
//! ```
//!
//! Further arguments: the number of rounds (default 7), and the milliseconds from one round to the next (default 10,000). The client's
//! times to live are scaled with this interval, so that a shorter run sends as many requests.

#![allow(clippy::unwrap_used, reason = "a bench ends where something fails")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Limits};
use serde_json::{Value, json};

const PIPELINES: usize = 200;
/// Secrets of each pipeline. The last two belong to its team.
const SECRETS: usize = 5;
const OWN: usize = 3;
/// Number of concurrent readers.
const WORKERS: usize = 64;
/// Interval of Concourse between two checks, in ms.
const PERIOD_MS: u64 = 10_000;
const ROUNDS: usize = 7;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    match arguments[..] {
        ["client", url, root, secret, rounds, period] => {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let report = runtime.block_on(lookups(url, root, secret, (number(rounds), number(period))));
            println!("{report}");
        }
        [bulla, go] => compare(bulla, go, (ROUNDS as u64, PERIOD_MS)),
        [bulla, go, rounds, period] => compare(bulla, go, (number(rounds), number(period))),
        _ => {
            eprintln!("usage: concourse BULLA CREDHUB-LOOKUPS [ROUNDS PERIOD_MS]");
            std::process::exit(2);
        }
    }
}

/// Reads the same secrets as the Go program, with this client.
async fn lookups(url: &str, root: &str, secret: &str, (rounds, period_ms): (u64, u64)) -> Value {
    let usual = Limits::default();
    let shorter = |time: Duration| time.mul_f64(period_ms as f64 / PERIOD_MS as f64);
    let limits = Limits {
        ttl: shorter(usual.ttl),
        negative_ttl: shorter(usual.negative_ttl),
        revalidate: shorter(usual.revalidate),
        ..usual
    };
    let client = Client::builder(url).roots(std::fs::read(root).unwrap()).limits(limits);
    let client = client.client_credentials("ci", secret).build().unwrap();
    let next = Arc::new(AtomicUsize::new(0));
    let all = rounds as usize * PIPELINES * SECRETS;
    let began = Instant::now();
    let workers = (0..WORKERS).map(|_| {
        let (client, next) = (client.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            let mut took = Vec::new();
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= all {
                    return took;
                }
                let round = turn / (SECRETS * PIPELINES);
                let begins = began + Duration::from_millis(round as u64 * period_ms);
                tokio::time::sleep_until(begins.into()).await;
                let (pipeline, secret) = (turn / SECRETS % PIPELINES, turn % SECRETS);
                let names =
                    [format!("/concourse/main/p{pipeline}/s{secret}"), format!("/concourse/main/s{secret}")];
                let start = Instant::now();
                let found = client.lookup(&names).await.unwrap().unwrap();
                took.push(start.elapsed());
                let wanted = value_of(pipeline, secret);
                assert_eq!(found.text(&[]).unwrap().expose(), wanted);
            }
        })
    });
    let mut took = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        took.extend(worker.await.unwrap());
    }
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1_000.0;
    let stats = client.stats();
    json!({
        "lookups": took.len(),
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "requests": stats.requests,
        "connections": stats.connections,
        "handshakes": stats.handshakes,
        "logins": stats.logins,
        "cpu_ms": processor_ms(std::process::id()),
        "hits": stats.hits,
        "stale_hits": stats.stale_hits,
        "misses": stats.misses,
    })
}

fn value_of(pipeline: usize, secret: usize) -> String {
    if secret < OWN { format!("p{pipeline}-{secret}") } else { format!("team-{secret}") }
}

/// Returns the processor time of a process in ms (proc(5), utime and stime; one tick is 10 ms on Linux).
fn processor_ms(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let after = &stat[stat.rfind(')').unwrap() + 2..];
    let ticks: u64 = after.split(' ').skip(11).take(2).map(|text| text.parse::<u64>().unwrap()).sum();
    ticks * 10
}

/// A running `bulla up` with its own folder, which stores the secrets.
struct House {
    server: Child,
    folder: tempfile::TempDir,
    bulla: String,
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl House {
    fn up(bulla: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // The best case for the library: each of its searches is one index probe.
        let text = format!(
            "roles = [\"server\"]\n[server]\nlisten = \"127.0.0.1:{}\"\npublic_listen = \"127.0.0.1:{}\"\n[credentials]\n\
             listen = \"127.0.0.1:{}\"\nexact_name_like = [\"uaa-client:ci\"]\n",
            port(),
            port(),
            port()
        );
        std::fs::write(folder.path().join("bulla.toml"), text).unwrap();
        let bulla = std::fs::canonicalize(bulla).unwrap().display().to_string();
        let mut server = Self::command(&bulla, &folder, &["up"]);
        let mut server = server.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap().starts_with("bulla is up at ")), "it did not start");
        std::thread::spawn(move || lines.for_each(drop));
        Self { server, folder, bulla }
    }

    fn command(bulla: &str, folder: &tempfile::TempDir, arguments: &[&str]) -> Command {
        let mut command = Command::new(bulla);
        command
            .env("BULLA_DATA", folder.path().join("data"))
            .env("BULLA_CONFIG", folder.path().join("bulla.toml"))
            .current_dir(folder.path())
            .args(arguments);
        command
    }

    fn does(&self, arguments: &[&str]) -> String {
        let output = Self::command(&self.bulla, &self.folder, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join("data").join(name)).unwrap().trim().to_owned()
    }

    fn root(&self) -> String {
        self.folder.path().join("data/root.pem").display().to_string()
    }

    async fn fill(&self) {
        let root = reqwest::Certificate::from_pem(self.root_pem().as_bytes()).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
        let (url, token) =
            (format!("{}/api/v1/data", self.read("credentials.url")), self.read("admin.token"));
        for pipeline in 0..PIPELINES {
            for secret in 0..SECRETS {
                let name = match secret {
                    _ if secret < OWN => format!("/concourse/main/p{pipeline}/s{secret}"),
                    _ if pipeline > 0 => continue,
                    _ => format!("/concourse/main/s{secret}"),
                };
                let body = json!({ "name": name, "type": "value", "value": value_of(pipeline, secret) });
                let answer = http.put(&url).bearer_auth(&token).json(&body).send().await.unwrap();
                assert!(answer.status().is_success(), "{name}: {}", answer.status());
            }
        }
    }

    fn root_pem(&self) -> String {
        std::fs::read_to_string(self.root()).unwrap()
    }

    /// Runs a client. Returns the figures that the client prints, and the processor time of the server.
    fn run(&self, command: &mut Command) -> Value {
        let before = processor_ms(self.server.id());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["server_cpu_ms"] = (processor_ms(self.server.id()) - before).into();
        report
    }
}

fn compare(bulla: &str, go: &str, (rounds, period_ms): (u64, u64)) {
    let house = House::up(bulla);
    tokio::runtime::Runtime::new().unwrap().block_on(house.fill());
    let made: Value =
        serde_json::from_str(&house.does(&["token", "create", "ci", "--role", "viewer", "--output", "json"]))
            .unwrap();
    let secret = made["token"].as_str().unwrap();
    house.does(&["credential", "permission", "grant", "uaa-client:ci", "/concourse/*", "read"]);
    let (url, root) = (house.read("credentials.url"), house.root());
    let lookups = (rounds as usize * PIPELINES * SECRETS).to_string();
    let (workers, pipelines, period) = (WORKERS.to_string(), PIPELINES.to_string(), period_ms.to_string());
    let theirs = house.run(Command::new(go).args([
        url.as_str(),
        root.as_str(),
        "ci",
        secret,
        &workers,
        &lookups,
        &pipelines,
        &period,
    ]));
    let ours = house.run(Command::new(std::env::current_exe().unwrap()).args([
        "client",
        &url,
        &root,
        secret,
        &rounds.to_string(),
        &period,
    ]));
    println!(
        "{rounds} rounds, {period_ms} ms apart, {PIPELINES} pipelines with {SECRETS} secrets, {WORKERS} workers"
    );
    println!("{:<24} {:>12} {:>12} {:>12}", "", "Go library", "this client", "ratio");
    for (what, key) in [
        ("lookups", "lookups"),
        ("requests", "requests"),
        ("connections", "connections"),
        ("TLS handshakes", "handshakes"),
        ("logins", "logins"),
        ("p50, ms", "p50_ms"),
        ("p99, ms", "p99_ms"),
        ("the client's CPU, ms", "cpu_ms"),
        ("the server's CPU, ms", "server_cpu_ms"),
    ] {
        let (theirs, ours) = (theirs[key].as_f64().unwrap(), ours[key].as_f64().unwrap());
        println!("{what:<24} {theirs:>12.3} {ours:>12.3} {:>12.1}", theirs / ours);
    }
    println!(
        "the cache of this client: {} hits, {} stale, {} misses",
        ours["hits"], ours["stale_hits"], ours["misses"]
    );
}
