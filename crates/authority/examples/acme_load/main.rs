//! Benchmark: complete ACME orders per second over HTTPS, of Bulla and of step-ca. Each server runs in a separate process, so that
//! the processor time of the clients is not counted:
//!
//! ```sh
//! cargo run --release -p authority --example acme_load -- postgres://… 20000 64 http step-ca
//! ```
//!
//! Arguments: the database's address, the number of orders, the number of concurrent clients (each has an account and a keep-alive
//! connection), and `trust` (no validation) or `http` (http-01 on loopback). With `http`, the further argument `step-ca` also
//! measures step-ca. `.ci/interop` builds it into `target/interop/bin`, which must be in `PATH`. It stores its rows in a file, which
//! is its default.

mod client;
mod ours;
mod peer;

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use client::{Client, KeyAuthorizations};

/// The allocator that `bulla` uses, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Port that responds to http-01 validations.
const PROOF_PORT: u16 = 5_002;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The process of a server under load. Dropping it kills the process.
struct Server {
    name: &'static str,
    directory: String,
    child: Child,
    _folder: Option<tempfile::TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Load {
    orders: u64,
    clients: u64,
}

struct Figures {
    per_second: f64,
    server_us: f64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (url, orders, clients, mode, peer) =
        match arguments[..] {
            ["serve", url, mode] => return ours::serve(url, mode).await,
            [url, orders, clients, mode] => (url, orders, clients, mode, false),
            [url, orders, clients, "http", "step-ca"] => (url, orders, clients, "http", true),
            _ => return Err(
                "give the database's address, orders, clients at once, trust or http, and perhaps step-ca"
                    .into(),
            ),
        };
    let load = Load { orders: orders.parse()?, clients: clients.parse()? };
    let proofs = KeyAuthorizations::default();
    tokio::spawn(client::prove(PROOF_PORT, proofs.clone()));
    let ours = run(ours::start(url, mode)?, &load, &proofs).await?;
    if peer {
        let theirs = run(peer::start()?, &load, &proofs).await?;
        println!(
            "orders a second: ×{:.1}; processor time of an order: 1/{:.1}",
            ours.per_second / theirs.per_second,
            theirs.server_us / ours.server_us
        );
    }
    Ok(())
}

async fn run(server: Server, load: &Load, proofs: &KeyAuthorizations) -> Result<Figures, Failure> {
    let mut all = Vec::new();
    for _ in 0..load.clients {
        all.push(Client::registered(&server.directory, proofs.clone()).await?);
    }
    let (next, slowest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let pid = server.child.id().to_string();
    let (began, server_cpu, own_cpu) = (Instant::now(), cpu_seconds(&pid), cpu_seconds("self"));
    let mut tasks = tokio::task::JoinSet::new();
    for mut client in all {
        let (next, slowest, orders) = (next.clone(), slowest.clone(), load.orders);
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= orders {
                    return Ok::<(), Failure>(());
                }
                let began = Instant::now();
                client.order(number).await?;
                slowest.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let (seconds, orders) = (began.elapsed().as_secs_f64(), load.orders as f64);
    let each = |before: f64, now: f64| (now - before) * 1e6 / orders;
    let figures = Figures { per_second: orders / seconds, server_us: each(server_cpu, cpu_seconds(&pid)) };
    let of_machine = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{}: {:.0} orders/s, {:.0} µs of its processor time each ({:.0} µs of the clients'), slowest {:.0} ms, load {}",
        server.name,
        figures.per_second,
        figures.server_us,
        each(own_cpu, cpu_seconds("self")),
        slowest.load(Ordering::Relaxed) as f64 / 1_000.0,
        of_machine.split(' ').next().unwrap_or_default(),
    );
    Ok(figures)
}

/// Returns the user and system time of a process in seconds, from /proc (in ticks of 10 ms).
fn cpu_seconds(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    ticks.iter().sum::<f64>() / 100.0
}
