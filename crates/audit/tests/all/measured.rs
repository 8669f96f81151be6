//! Measures the cost of a segment of 100,000 reads. Run manually: `cargo test --release -p audit measured -- --ignored
//! --nocapture`.

use std::time::Instant;

use audit::{Reads, Step};
use serde_json::json;

use crate::fixture::{Fixture, event, retention};

/// Number of distinct pairs of an actor and a name. The pairs read in turn.
const READERS: usize = 500;

async fn measure(fixture: Fixture, which: &str, reads: Reads) {
    // 1000 reads per second.
    for second in 0..100 {
        let one = |at: usize| {
            let version = format!("01939bd0-0000-7000-8000-{:012}", at % READERS);
            let actor = format!("token:app-{}", at % 50);
            let mut event = event(60, second, &actor, "credential.read", json!({ "version": version }));
            event.resource = format!("credential/team/app/secret-{}", at % READERS);
            event.at_us += (at * 7_919 % 1_000_000) as i64;
            event
        };
        fixture.put((0..1_000).map(one).collect()).await;
    }
    let mut options = retention(None, 100_000);
    options.retention.reads = reads;
    let log = fixture.with(options);
    let began = Instant::now();
    assert_eq!(log.retain().await.unwrap(), Step::Sealed(1));
    let sealing = began.elapsed().as_millis();
    while log.retain().await.unwrap() != Step::Nothing {}
    let took = began.elapsed().as_millis();
    let row = audit::tables::Segments::of(&fixture.store).newest().await.unwrap().unwrap();
    let began = Instant::now();
    assert_eq!(fixture.faults().await, [""; 0]);
    println!(
        "{which} {reads:?}: {sealing} ms to seal, {took} ms with deleting rows, {:.1} bytes a read, {} ms to verify",
        (row.bytes as usize + row.head.len()) as f64 / 100_000.0,
        began.elapsed().as_millis()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn read_audit_segment_cost_is_measured() {
    for reads in [Reads::ByMinute, Reads::Each] {
        measure(Fixture::sqlite().await, "SQLite", reads).await;
        measure(Fixture::postgres().await, "PostgreSQL", reads).await;
    }
}
