//! Benchmark: processor time of a DNS lookup: `cargo run --release -p outbound --example lookups`.
//!
//! The name server is a child process (this program again), so that its processor time is not counted. Prints the processor time per
//! lookup for new names and for cached names.

#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use outbound::resolve::{Families, Resolver};
use tokio::task::JoinSet;

const NAMES: usize = 100_000;
const IN_FLIGHT: usize = 256;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return serve();
    }
    let me = std::env::current_exe().unwrap();
    let mut server =
        Command::new(me).arg("serve").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let upstream = line.trim().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let resolver = Resolver::with_upstreams(vec![upstream]);
        for round in ["first", "again"] {
            let (began, used) = (Instant::now(), processor_time());
            look_up_all(&resolver).await;
            let (took, used) = (began.elapsed(), processor_time() - used);
            println!("{round}: {NAMES} names in {took:?}, {:?} of processor each", used / NAMES as u32);
        }
        println!("{:?}", resolver.counts());
    });
    server.kill().unwrap();
    server.wait().unwrap();
}

async fn look_up_all(resolver: &Resolver) {
    let mut under_way = JoinSet::new();
    for n in 0..NAMES {
        if under_way.len() >= IN_FLIGHT {
            under_way.join_next().await;
        }
        let resolver = resolver.clone();
        under_way.spawn(async move {
            let name = format!("host-{n}.scan.example");
            resolver.resolve(&name, Families::V4, Duration::from_secs(5)).await.unwrap();
        });
    }
    under_way.join_all().await;
}

/// Returns the user and system time of this process (in clock ticks of 10 ms).
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks = |field: usize| after_name.split_whitespace().nth(field).unwrap().parse::<u64>().unwrap();
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// Responds to every query with one address.
fn serve() {
    const ANSWER: [u8; 16] = [0xC0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4, 127, 0, 0, 1];
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    println!("{}", socket.local_addr().unwrap());
    std::io::stdout().flush().unwrap();
    let mut message = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut message) {
        // Copies the header and the question, without the eleven bytes of the EDNS record.
        let mut answer = message[..length - 11].to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x80]);
        answer[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
        answer.extend(ANSWER);
        let _ = socket.send_to(&answer, from);
    }
}
