//! Benchmark: latency of RSA-2048 signatures at the signing stage with a fixed number of requests in flight, in batches and one by one.
//!
//! The measurement one by one uses the cost class of larger keys, which makes no batches. This class has half as many threads as
//! processors, so it is given twice as many processors.
//!
//! `cargo run --release -p keyless --example batches -- [--seconds 3]`

#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

use std::sync::mpsc;
use std::time::{Duration, Instant};

use keyless::stage::{Cost, Job, Responder, Stage, StageError};
use keys::{Batches, Hash, KeyType, PrivateKey, Scheme};

/// Signatures in flight, up to the maximum queue length of both classes.
const LOADS: [usize; 4] = [1, 16, 128, 512];

/// A request that reports its start time when it is finished.
struct Waiting {
    started: Instant,
    answer: mpsc::Sender<Instant>,
}

impl Responder for Waiting {
    fn is_waiting(&self) -> bool {
        true
    }

    fn respond(self, signed: Result<Vec<u8>, StageError>) {
        signed.unwrap();
        // After the measurement, the receiver was dropped.
        let _ = self.answer.send(self.started);
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == "--seconds");
    let seconds: f64 = at.map_or(3.0, |at| arguments[at + 1].parse().unwrap());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let keys: Vec<PrivateKey> = (0..16).map(|_| PrivateKey::generate(KeyType::Rsa2048).unwrap()).collect();
    println!(
        "{processors} processors, {} keys, {seconds} s a cell: a second (p50, p99, p99.9 ms)",
        keys.len()
    );
    for load in LOADS {
        for (name, cost, of) in
            [("one by one", Cost::Heavy, 2 * processors), ("in batches", Cost::Medium, processors)]
        {
            let stage = Stage::start(of, Batches::All).unwrap();
            let mut took = measure(&stage, cost, &keys, load, Duration::from_secs_f64(seconds));
            took.sort();
            let rate = took.len() as f64 / seconds;
            let ms = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
            let figures = stage.figures(cost);
            println!(
                "{load:5} in flight, {name}: {rate:6.0} ({:.2}, {:.2}, {:.2}), {} % batched",
                ms(0.5),
                ms(0.99),
                ms(0.999),
                100 * figures.batched / figures.done.max(1),
            );
            stage.stop().await;
        }
    }
}

/// Returns the latency of each signature.
fn measure(
    stage: &Stage<Waiting>,
    cost: Cost,
    keys: &[PrivateKey],
    load: usize,
    span: Duration,
) -> Vec<Duration> {
    let (answer, answers) = mpsc::channel();
    let mut next = keys.iter().cycle();
    let mut submit_job = || {
        let job = Job {
            key: next.next().unwrap().clone(),
            scheme: Scheme::RsaPss(Hash::Sha256),
            input: [7; 32].into(),
            deadline: Instant::now() + Duration::from_secs(60),
            line: 0,
            responder: Waiting { started: Instant::now(), answer: answer.clone() },
        };
        assert!(stage.submit(cost, job).is_ok(), "the queue is longer than the load");
    };
    (0..load).for_each(|_| submit_job());
    // Work that is done once per key is not measured.
    let warm = Instant::now() + span / 10;
    let mut took = Vec::new();
    while Instant::now() < warm + span {
        let started = answers.recv().unwrap();
        if started >= warm {
            took.push(started.elapsed());
        }
        submit_job();
    }
    took
}
