//! What batches change for those who wait: RSA-2048 at the stage alone, so many in flight all the time, in batches and one by one.
//!
//! One by one is the class of larger keys, which takes no batches and has half as many threads as processors: it is given twice as
//! many.
//!
//! `cargo run --release -p keyless --example batches -- [--seconds 3]`

#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

use std::sync::mpsc;
use std::time::{Duration, Instant};

use keyless::stage::{Cost, Job, Responder, Stage, StageError};
use keys::{Batches, Hash, KeyType, PrivateKey, Scheme};

/// Signatures asked for and not yet made: as many as may wait in either class.
const LOADS: [usize; 4] = [1, 16, 128, 512];

/// Tells when it was asked for, once it is answered.
struct Waiting {
    asked: Instant,
    answer: mpsc::Sender<Instant>,
}

impl Responder for Waiting {
    fn is_waiting(&self) -> bool {
        true
    }

    fn respond(self, signed: Result<Vec<u8>, StageError>) {
        signed.unwrap();
        // The last ones find nobody.
        let _ = self.answer.send(self.asked);
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

/// How long each took from asking to answer.
fn measure(
    stage: &Stage<Waiting>,
    cost: Cost,
    keys: &[PrivateKey],
    load: usize,
    span: Duration,
) -> Vec<Duration> {
    let (answer, answers) = mpsc::channel();
    let mut next = keys.iter().cycle();
    let mut ask = || {
        let job = Job {
            key: next.next().unwrap().clone(),
            scheme: Scheme::RsaPss(Hash::Sha256),
            input: [7; 32].into(),
            deadline: Instant::now() + Duration::from_secs(60),
            line: 0,
            responder: Waiting { asked: Instant::now(), answer: answer.clone() },
        };
        assert!(stage.submit(cost, job).is_ok(), "the queue is longer than the load");
    };
    (0..load).for_each(|_| ask());
    // What is made once a key is not measured.
    let warm = Instant::now() + span / 10;
    let mut took = Vec::new();
    while Instant::now() < warm + span {
        let asked = answers.recv().unwrap();
        if asked >= warm {
            took.push(asked.elapsed());
        }
        ask();
    }
    took
}
