//! Benchmark: processor time of the search for injected values in responses: `cargo run --release -p proxy --example scrub_costs`.

use std::hint::black_box;

use bytes::Bytes;
use proxy::requests::{Scrubber, TooMuch};

const VALUE: &[u8] = b"ghp_16C7e42F292c6912E7710c838347Ae178B4a";
/// Bytes per read: one TLS record.
const CHUNK_BYTES: usize = 16 << 10;
const ROUNDS: u64 = 200;

fn main() -> Result<(), TooMuch> {
    let prose =
        "The quick brown fox jumps over the lazy dog, and the packet was sent again at 12:00.\n".repeat(800);
    let json = r#"{"id":1296269,"node_id":"MDEwOlJlcG9zaXRvcnkxMjk2MjY5","name":"Hello-World","private":false,"url":"https://api.github.com/repos/octocat/Hello-World?a=b%20c&d=e","text":"a \"quoted\" line\nand more"},"#.repeat(300);
    for (name, text) in [
        ("prose", prose.into_bytes()),
        ("JSON", json.into_bytes()),
        ("binary", noise()),
        ("escaped JSON", "\\u0041\\u0067".repeat(5_000).into_bytes()),
    ] {
        let (text, mut scrubber) = (Bytes::from(text), Scrubber::of(VALUE));
        let began = processor_time();
        for _ in 0..ROUNDS {
            for chunk in text.chunks(CHUNK_BYTES) {
                black_box(scrubber.pass(text.slice_ref(chunk))?);
            }
        }
        let took = processor_time().saturating_sub(began);
        println!("{name:<12} {:>6} ns/KiB", took * 1_024 / (ROUNDS * text.len() as u64));
    }
    let began = processor_time();
    (0..ROUNDS).for_each(|_| drop(black_box(Scrubber::of(VALUE))));
    println!("once for a value: {} ns", processor_time().saturating_sub(began) / ROUNDS);
    Ok(())
}

/// Returns bytes without a pattern (xorshift).
fn noise() -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..64 << 10).map(next).collect()
}

/// Returns the processor time of this thread, ns. Other programs on the machine do not affect it.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}
