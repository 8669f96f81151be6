//! What a segment of 100,000 reads costs. By hand: `cargo test --release -p audit measured -- --ignored --nocapture`.

use std::time::Instant;

use audit::{Reads, Step};
use serde_json::json;

use crate::place::{Place, event, retention};

/// Actors × names that read, one after the other.
const READERS: usize = 500;

async fn measure(place: Place, which: &str) {
    for reads in [Reads::ByMinute, Reads::Each] {
        let mut left = 100_000;
        let mut second = 0;
        while left > 0 {
            let one = |at: usize| {
                let version = format!("01939bd0-0000-7000-8000-{:012}", at % READERS);
                let mut event = event(
                    60,
                    second,
                    &format!("token:app-{}", at % 50),
                    "credential.read",
                    json!({ "version": version }),
                );
                event.resource = format!("credential/team/app/secret-{}", at % READERS);
                event.at_us += (at * 7_919 % 1_000_000) as i64;
                event
            };
            place.put((0..1_000).map(one).collect()).await;
            left -= 1_000;
            // A thousand reads a second.
            second += 1;
        }
        let mut options = retention(None, 100_000);
        options.retention.reads = reads;
        let log = place.with(options);
        let began = Instant::now();
        let mut sealed = Vec::new();
        let mut sealing = 0;
        loop {
            let step_began = Instant::now();
            match log.retain().await.unwrap() {
                Step::Nothing => break,
                Step::Sealed(number) => {
                    sealing += step_began.elapsed().as_millis();
                    sealed.push(number);
                }
                _ => {}
            }
        }
        let took = began.elapsed().as_millis();
        let rows = audit::tables::Segments::of(&place.store).after(0, 1_000).await.unwrap();
        let bytes: u64 = rows
            .iter()
            .filter(|row| sealed.contains(&row.number.unsigned_abs()))
            .map(|row| row.bytes + row.head.len() as u64)
            .sum();
        let verify_began = Instant::now();
        assert_eq!(place.faults().await, [""; 0]);
        println!(
            "{which} {reads:?}: {} segments, {sealing} ms to seal, {took} ms with deleting rows, {:.1} bytes a read, {} ms to verify",
            sealed.len(),
            bytes as f64 / 100_000.0,
            verify_began.elapsed().as_millis()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measured_on_sqlite() {
    measure(Place::sqlite().await, "SQLite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measured_on_postgres() {
    measure(Place::postgres().await, "PostgreSQL").await;
}
