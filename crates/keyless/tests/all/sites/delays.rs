//! Network delay: which requests it affects, and which it must not affect.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fleet::network::{LinkConditions, alone};
use futures_util::future::join_all;
use keyless::client::{Client, ClientMetrics, ClientOptions, Server};
use keyless::native::proto::SignRequest;
use keyless::routing::RouterOptions;
use keyless::wire::MessageItems;
use keys::KeyRef;
use tokio::task::JoinSet;
use tonic::Code;

use super::{Fixture, Load, PORT, World, calm};
use crate::native::{EC, patient, request};
use crate::peer::{TIMEOUT, key, ski, until};

/// Requests per second on one connection.
const RATE: u32 = 200;
/// One request in this many goes to the distant node.
const FAR_EVERY: u32 = 20;

/// Sends requests for a local key, and among them some for a distant one. Returns the durations of the local requests, and the
/// distant requests, which may still be in flight.
async fn mixed(
    client: &Client,
    near: MessageItems<'static>,
    far: Option<MessageItems<'static>>,
) -> (Load, JoinSet<()>) {
    const COUNT: u32 = 2 * RATE;
    let (mut nears, mut fars) = (JoinSet::new(), JoinSet::new());
    let began = Instant::now();
    for number in 0..COUNT {
        let due = began + Duration::from_secs(1) / RATE * number;
        tokio::time::sleep_until(due.into()).await;
        if let Some(far) = far.filter(|_| number % FAR_EVERY == 0) {
            let client = client.clone();
            fars.spawn(async move {
                client.call(&far, due + 2 * TIMEOUT).await.unwrap();
            });
        }
        let client = client.clone();
        nears.spawn(async move {
            client.call(&near, due + TIMEOUT).await.unwrap();
            due.elapsed()
        });
    }
    let mut load = Load::default();
    while let Some(took) = nears.join_next().await {
        load.took.push(took.unwrap());
    }
    (load, fars)
}

/// Failure 1: requests of one connection served one after the other. All local requests are answered while the distant ones, which
/// were sent before them, wait for their key.
#[test]
fn requests_to_a_distant_node_do_not_delay_local_requests() {
    alone(|| {
        let world = World::new(&[200]);
        let own = key(keys::KeyType::P256);
        world.home.node.keys.put("own", vec![Arc::new(own.clone()) as KeyRef]);
        let socket = Server::Unix(world.home.node.folder.path().join("keys.sock"));
        let options = ClientOptions {
            servers: vec![socket],
            in_flight_max: 8_192,
            connect_timeout: TIMEOUT,
            ping_every: TIMEOUT,
            ping_timeout: TIMEOUT,
            ..ClientOptions::default()
        };
        let of =
            |ski| MessageItems { opcode: 0x15, ski: Some(ski), payload: &[7; 32], ..MessageItems::default() };
        let (near, far) = (of(ski(own)), of(ski(&world.key)));
        world.gates[0].send_replace(false);
        world.clients.block_on(async {
            let client = Client::start(&options, ClientMetrics::default()).unwrap();
            let (quiet, _) = mixed(&client, near, None).await;
            let (loaded, fars) = mixed(&client, near, Some(far)).await;
            assert_eq!(world.home.node.figure("bulla_keyless_connections"), 1.0);
            println!(
                "row 1: near work at {RATE}/s on one connection: {}; with {} % that goes 200 ms and waits: {}",
                quiet.shown(),
                100 / FAR_EVERY,
                loaded.shown(),
            );
            // None of them has been answered.
            until(|| world.requested()[0] == fars.len()).await;
            world.gates[0].send_replace(true);
            fars.join_all().await;
            client.stop().await;
        });
        assert_eq!(world.gated_keys[0].signed.load(Relaxed), 2 * (RATE / FAR_EVERY) as usize);
        world.stop();
    });
}

/// Failure 14: a relay with only one request in flight. Here one connection carries a thousand requests before the first is
/// answered.
#[test]
fn one_connection_carries_many_concurrent_requests() {
    const MANY: usize = 1_000;
    alone(|| {
        let world = World::new(&[100]);
        world.clients.block_on(async {
            let client = world.home.node.client();
            let sign = |_| client.sign(request(0, &world.key, EC, &[1; 32]), patient());
            world.gates[0].send_replace(false);
            let opened = async {
                until(|| world.requested()[0] == MANY).await;
                world.gates[0].send_replace(true);
            };
            let (done, ()) = tokio::join!(join_all((0..MANY).map(sign)), opened);
            assert!(done.iter().all(Result::is_ok), "{:?}", done.iter().find(|done| done.is_err()));
            let began = Instant::now();
            let done = join_all((0..MANY).map(sign)).await;
            let took = began.elapsed();
            assert!(done.iter().all(Result::is_ok));
            println!(
                "row 14: {MANY} through one connection, 100 ms away, in {took:.1?}: {:.0}/s",
                MANY as f64 / took.as_secs_f64()
            );
            // Sequentially they would take 100 s.
            assert!(took < Duration::from_secs(50), "{took:?}");
        });
        assert_eq!(world.home.connections((world.others[0].site.address, PORT).into()), 1);
        world.stop();
    });
}

/// Failure 5: timeouts that hide each other. The client is 50 ms from its node, that node 100 ms from the next, and the key there
/// does not answer. The last node reports the timeout to all, and nothing is signed later.
#[test]
fn deadline_error_names_the_last_hop_and_nothing_is_signed_later() {
    const MANY: usize = 50;
    alone(|| {
        // A stall of this machine that is shorter than the margin does not change which hop reports the timeout.
        let router = RouterOptions { margin: Duration::from_secs(5), ..calm() };
        let mut world = World::with(&[100], router, Vec::new());
        let outside = world.network.site().unwrap();
        world.network.set(&outside, &world.home.site, LinkConditions::round_trip(Duration::from_millis(50)));
        world.gates[0].send_replace(false);
        let remote = outside.runtime().unwrap();
        let client = world.client_of("outside", &remote);
        let late = SignRequest { timeout_ms: 15_000, ..request(0, &world.key, EC, &[1; 32]) };
        let one = move || {
            let (client, late) = (client.clone(), late.clone());
            async move { client.sign(late, patient()).await }
        };
        let all = remote.spawn(async move { join_all((0..MANY).map(|_| one())).await });
        for done in world.clients.block_on(all).unwrap() {
            let status = done.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            assert!(status.message().contains("node-2: deadline exceeded in the key service"), "{status}");
        }
        world.gates[0].send_replace(true);
        let load = world.clients.block_on(world.sign_at(1, Duration::ZERO));
        assert_eq!((load.signed, world.requested()[0]), (1, MANY + 1));
        let signed = world.gated_keys[0].signed.load(Relaxed);
        println!(
            "row 5: {MANY} late, all told so by the last of three; signed after the deadline: {}",
            signed - 1
        );
        assert_eq!(signed, 1);
        world.stop();
    });
}

/// Failure 6: abandoned work continues. A thousand callers cancel while their requests are at a node 100 ms away.
#[test]
fn abandoned_requests_are_cancelled_at_the_distant_node() {
    const MANY: usize = 1_000;
    alone(|| {
        let world = World::new(&[100]);
        world.gates[0].send_replace(false);
        world.clients.block_on(async {
            let client = world.home.node.client();
            let sign = |_| client.sign(request(0, &world.key, EC, &[1; 32]), patient());
            tokio::select! {
                _ = join_all((0..MANY).map(sign)) => panic!("the gate is closed"),
                () = until(|| world.requested()[0] == MANY) => {}
            }
            let began = Instant::now();
            let remote = || world.others[0].node.figure("bulla_keyless_elsewhere_in_flight");
            let local = || world.home.node.figure("bulla_keyless_site_requests_in_flight{site=\"site-2\"}");
            until(|| local() == 0.0).await;
            let cancelled_after = began.elapsed();
            // The cancellation is sent before the next request.
            let last = async { assert!(sign(0).await.is_ok()) };
            let opened = async {
                until(|| world.requested()[0] == MANY + 1).await;
                until(|| remote() <= 1.0).await;
                world.gates[0].send_replace(true);
            };
            tokio::join!(last, opened);
            // Without cancellation they would end at their deadline, a minute later.
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
            println!("row 6: {MANY} given up: none under way here after {cancelled_after:.1?}, none signed 100 ms away");
        });
        assert_eq!(world.gated_keys[0].signed.load(Relaxed), 1);
        world.stop();
    });
}

/// Failure 13: a slow stage without an error. First the key is slow, then the network. The trace shows which.
#[test]
fn trace_shows_which_stage_is_slow() {
    const SLOW: Duration = Duration::from_millis(400);
    const SLOW_US: u64 = SLOW.as_micros() as u64;
    alone(|| {
        let world = World::new(&[20]);
        let trace_json = |fixture: &Fixture, trace: &str| -> serde_json::Value {
            let began = Instant::now();
            loop {
                let text = fixture.node.metrics.traces().answer(&format!("/traces/{trace}")).unwrap();
                let trace_json: serde_json::Value = serde_json::from_str(&text).unwrap();
                if let [request] = trace_json["requests"].as_array().unwrap().as_slice() {
                    return request.clone();
                }
                assert!(began.elapsed() < TIMEOUT, "{trace_json}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let us = |request: &serde_json::Value, stage: &str| {
            request["stages"][stage].as_u64().unwrap_or_else(|| panic!("no {stage}: {request}"))
        };
        let (key, link) = ("a".repeat(32), "b".repeat(32));
        let sign_traced = |trace: &str| {
            let traceparent = format!("00-{trace}-00f067aa0ba902b7-01");
            let requested = SignRequest { traceparent, ..request(0, &world.key, EC, &[1; 32]) };
            let client = world.home.node.client();
            async move { client.sign(requested, patient()).await.unwrap() }
        };
        world.clients.block_on(async {
            world.gates[0].send_replace(false);
            let opened = async {
                until(|| world.requested()[0] == 1).await;
                tokio::time::sleep(SLOW).await;
                world.gates[0].send_replace(true);
            };
            tokio::join!(sign_traced(&key), opened);
            world.set(0, LinkConditions::round_trip(SLOW));
            sign_traced(&link).await;
        });
        let (local, remote) = (trace_json(&world.home, &key), trace_json(&world.others[0], &key));
        assert!(us(&remote, "sign_us") >= SLOW_US, "{remote}");
        println!("row 13: a slow key: {} there, {} here", remote["stages"], local["stages"]);
        assert_eq!(remote["parent_id"], local["span_id"]);
        let (local, remote) = (trace_json(&world.home, &link), trace_json(&world.others[0], &link));
        println!("row 13: a slow way: {} there, {} here", remote["stages"], local["stages"]);
        assert!(us(&local, "wire_us") >= remote["took_us"].as_u64().unwrap() + SLOW_US, "{local} {remote}");
        world.stop();
    });
}
