//! Benchmark: cost of the record of a signature. On the path of the request: reserving a slot, creating the draft and filling it. Off the
//! path: writing the line to the disk.
//!
//! `cargo run --release -p keyless --example records -- [--records 1000000]`

#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyless::KeySet;
use keyless::records::{Recorder, RecordsOptions, Sample};
use keys::{KeyRef, KeyType, PrivateKey};

/// Number of records between two writes. Writes are not on the path of requests.
const ROUND: usize = 10_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == "--records");
    let records: usize = at.map_or(1_000_000, |at| arguments[at + 1].parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::open(RecordsOptions::new(folder.path().to_owned())).unwrap();
    let keys = KeySet::default();
    keys.put("one", vec![Arc::new(PrivateKey::generate(KeyType::P256).unwrap()) as KeyRef]);
    let sample = Sample::new(&recorder, &keys).unwrap();
    let (mut rounds, mut writing) = (Vec::new(), Duration::ZERO);
    for _ in 0..records.div_ceil(ROUND) {
        let began = Instant::now();
        (0..ROUND).for_each(|at| sample.record(&[at as u8; 32]));
        rounds.push(began.elapsed());
        let began = Instant::now();
        recorder.write().unwrap();
        writing += began.elapsed();
    }
    rounds.sort();
    let nanos = |of: Duration| of.as_nanos() / ROUND as u128;
    let median = nanos(rounds[rounds.len() / 2]);
    println!("on the path: {median} ns a record, median of {} rounds of {ROUND}", rounds.len());
    println!("off the path: {} ns a record, the disk included", writing.as_nanos() / records as u128);
}
