//! Isolation under load: slow keys, full queues, deadlines.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use keyless::REMOTE_PER_KEY_MAX;
use keyless::server::Options;
use keyless::stage::{Cost, Job, Responder, Stage, StageError};
use keyless::tenant::TenantOptions;
use keyless::wire::{ErrorCode, MessageItems};
use keys::{Batches, Hash, KeyRef, KeyType, Scheme};

use crate::peer::{Gated, TIMEOUT, World, key, patient, ski, until};

const EC: Scheme = Scheme::Ecdsa(Hash::Sha256);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_key_does_not_delay_other_keys_on_the_same_connection() {
    const MORE: usize = 50;
    let (slow, open) = Gated::new(KeyType::P256);
    let name = ski(&*slow);
    let world = World::with(Options { deadline: TIMEOUT, ..Options::default() }, vec![slow as KeyRef]).await;
    let mut peer = world.connect().await;
    let at =
        |ski| MessageItems { opcode: 0x15, ski: Some(ski), payload: &[1; 32], ..MessageItems::default() };
    let mut waiting = Vec::new();
    for _ in 0..REMOTE_PER_KEY_MAX {
        waiting.push(peer.send_request(&at(name)).await);
    }
    // The limit of requests in flight is reached. Further requests are rejected immediately, because the connection is still read.
    for _ in 0..MORE {
        let reply = peer.call(&at(name)).await;
        assert_eq!(reply.error(), Some(ErrorCode::Internal as u8));
        let reply = peer.call(&at(ski(key(KeyType::P256)))).await;
        assert_eq!(reply.error(), None, "signed here meanwhile");
    }
    assert_eq!(world.figure("bulla_keyless_refusals_total{kind=\"key\"}"), MORE as f64);
    // The counter decreases shortly after the reply of a local signature is written.
    let under_way = "bulla_keyless_requests_in_flight{opcode=\"ecdsa-sha256\"}";
    until(|| world.figure(under_way) == REMOTE_PER_KEY_MAX as f64).await;
    open.send_replace(true);
    for _ in 0..waiting.len() {
        let reply = peer.next().await.unwrap();
        assert_eq!(reply.error(), None);
        waiting.retain(|id| *id != reply.id);
    }
    assert!(waiting.is_empty());
    world.running.stop().await;
}

/// Failure 2 of docs/places.md: worker threads blocked by requests that only wait. Ten thousand waiting requests cost only memory,
/// and local keys sign meanwhile. Runs in a separate process, to measure its memory alone.
#[cfg(target_os = "linux")]
#[test]
fn waiting_request_uses_at_most_ten_kilobytes() {
    const KEYS: usize = 4;
    const EACH: usize = 2_500;
    const EACH_MAX: usize = 10_000;
    fleet::network::alone(|| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let tenants = vec![TenantOptions {
                in_flight_max: KEYS * EACH + 1,
                destination_in_flight_max: EACH,
                ..TenantOptions::new("socket")
            }];
            let (slow, open): (Vec<_>, Vec<_>) = (0..KEYS).map(|_| Gated::new(KeyType::P256)).unzip();
            let names: Vec<_> = slow.iter().map(|key| ski(&**key)).collect();
            let slow = slow.into_iter().map(|key| key as KeyRef).collect();
            let world = World::with(Options { tenants, ..patient() }, slow).await;
            let local_items = MessageItems {
                opcode: 0x15,
                ski: Some(ski(key(KeyType::P256))),
                payload: &[1; 32],
                ..MessageItems::default()
            };
            let mut peers = Vec::new();
            for _ in 0..KEYS {
                let mut peer = world.connect_socket().await;
                for _ in 0..100 {
                    assert_eq!(peer.call(&local_items).await.error(), None);
                }
                peers.push(peer);
            }
            let (before, threads) = (resident(), threads());
            for (peer, name) in peers.iter_mut().zip(&names) {
                for _ in 0..EACH {
                    peer.send_request(&MessageItems { ski: Some(*name), ..local_items }).await;
                }
            }
            until(|| world.figure("bulla_keyless_elsewhere_in_flight") == (KEYS * EACH) as f64).await;
            let each = resident().saturating_sub(before) / (KEYS * EACH);
            println!("row 2: {} requests under way, {each} octets each, no thread more", KEYS * EACH);
            assert!(each < EACH_MAX, "{each}");
            // The runtime's two workers serve all waiting requests.
            assert_eq!(self::threads(), threads);
            for peer in &mut peers {
                for _ in 0..100 {
                    assert_eq!(peer.call(&local_items).await.error(), None, "signed here meanwhile");
                }
            }
            for open in &open {
                open.send_replace(true);
            }
            for peer in &mut peers {
                for _ in 0..EACH {
                    assert_eq!(peer.next().await.unwrap().error(), None);
                }
            }
            world.running.stop().await;
        });
    });
}

/// Returns the resident memory of this process in bytes.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    status("VmRSS:") * 1_024
}

#[cfg(target_os = "linux")]
fn threads() -> usize {
    status("Threads:")
}

#[cfg(target_os = "linux")]
fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_each_answered_with_their_own_signature() {
    let world = World::new().await;
    let mut peer = world.connect().await;
    let (light, medium) = (key(KeyType::P256), key(KeyType::Rsa2048));
    let mut sent = HashMap::new();
    for round in 0..200_u8 {
        for (opcode, key) in [(0x15, light), (0x35, medium)] {
            let payload = [round; 32];
            let items =
                MessageItems { opcode, ski: Some(ski(key)), payload: &payload, ..MessageItems::default() };
            sent.insert(peer.send_request(&items).await, (key, opcode));
        }
    }
    while !sent.is_empty() {
        let reply = peer.next().await.expect("an answer");
        let (key, opcode) = sent.remove(&reply.id).expect("asked once");
        assert_eq!(reply.error(), None);
        assert_eq!(reply.payload.len() == 256, opcode == 0x35, "{}", keys::Signer::key_type(key));
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unresponsive_key_times_out() {
    let (slow, _open) = Gated::new(KeyType::P256);
    let name = ski(&*slow);
    let options = Options { deadline: Duration::from_millis(100), ..Options::default() };
    let world = World::with(options, vec![slow as KeyRef]).await;
    let reply = world.connect().await.sign(0x15, name, &[1; 32]).await;
    assert_eq!(reply.error(), Some(ErrorCode::Internal as u8));
    world.running.stop().await;
}

/// A responder that sends the result through a channel.
#[derive(Debug)]
struct Waiting {
    is_connected: bool,
    answer: mpsc::Sender<Result<Vec<u8>, StageError>>,
}

impl Responder for Waiting {
    fn is_waiting(&self) -> bool {
        self.is_connected
    }

    fn respond(self, signed: Result<Vec<u8>, StageError>) {
        // The test may have dropped the receiver.
        let _ = self.answer.send(signed);
    }
}

fn job(
    answer: &mpsc::Sender<Result<Vec<u8>, StageError>>,
    deadline: Instant,
    is_connected: bool,
) -> Job<Waiting> {
    let responder = Waiting { is_connected, answer: answer.clone() };
    Job { key: key(KeyType::P256).clone(), scheme: EC, input: [7; 32].into(), deadline, line: 0, responder }
}

/// On a single-threaded runtime the stage's tasks do not run before this task waits, so the queue fills completely.
#[tokio::test]
async fn full_queue_rejects_at_once_and_expired_jobs_are_not_signed() {
    let stage = Stage::start(1, Batches::All).unwrap();
    let (answer, answers) = mpsc::channel();
    let later = Instant::now() + TIMEOUT;
    let past = Instant::now();
    let max = Cost::Light.waiting_max();
    for number in 0..max {
        let (deadline, is_connected) = match number {
            0..10 => (past, true),
            10..30 => (later, false),
            _ => (later, true),
        };
        stage.submit(Cost::Light, job(&answer, deadline, is_connected)).unwrap();
    }
    assert!(stage.submit(Cost::Light, job(&answer, later, true)).is_err());
    assert_eq!((stage.figures(Cost::Light).waiting, stage.figures(Cost::Light).refused), (max, 1));
    let done = tokio::task::spawn_blocking(move || {
        let answers: Vec<_> = (0..max - 20).map(|_| answers.recv_timeout(TIMEOUT).unwrap()).collect();
        let late = answers.iter().filter(|answer| **answer == Err(StageError::Late)).count();
        assert_eq!((late, answers.iter().filter(|answer| answer.is_ok()).count()), (10, max - 30));
    });
    done.await.unwrap();
    let figures = stage.figures(Cost::Light);
    assert_eq!((figures.late, figures.unwanted, figures.done), (10, 20, max as u64 - 30));
    assert_eq!((figures.waiting, figures.running), (0, 0));
    stage.stop().await;
    assert!(stage.submit(Cost::Light, job(&answer, later, true)).is_err(), "it has stopped");
}

/// The queue of expensive jobs is full. Cheap jobs are served nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_work_does_not_delay_light_work() {
    let stage = Stage::start(2, Batches::All).unwrap();
    let (answer, answers) = mpsc::channel();
    let later = Instant::now() + TIMEOUT;
    let heavy = |answer: &mpsc::Sender<_>| Job {
        key: key(KeyType::Rsa4096).clone(),
        scheme: Scheme::RsaPss(Hash::Sha256),
        ..job(answer, later, true)
    };
    let (heavy_answer, _heavy_answers) = mpsc::channel();
    for _ in 0..Cost::Heavy.waiting_max() {
        stage.submit(Cost::Heavy, heavy(&heavy_answer)).unwrap();
    }
    for _ in 0..100 {
        stage.submit(Cost::Light, job(&answer, later, true)).unwrap();
    }
    let light = tokio::task::spawn_blocking(move || {
        (0..100).for_each(|_| drop(answers.recv_timeout(TIMEOUT).unwrap().unwrap()));
    });
    light.await.unwrap();
    assert!(stage.figures(Cost::Heavy).waiting > 0, "light work went by");
    stage.stop().await;
    assert_eq!(stage.figures(Cost::Heavy).waiting, 0, "what waited is dropped");
}
