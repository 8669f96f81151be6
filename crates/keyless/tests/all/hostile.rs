//! Malformed and abusive messages.

use keyless::wire::{MessageItems, opcode};

use crate::peer::{World, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_message_closes_only_its_own_connection() {
    let world = World::new().await;
    let mut good = world.connect().await;
    let bodies: [&[u8]; 10] = [
        &[0x11, 0, 1, 0xf1, 0x11, 0, 1, 0xf1],
        &[0x20, 0, 0, 0x20, 0, 0],
        &[0x12, 0xff, 0xff],
        &[0x12, 0, 2, 1],
        &[0x11, 0, 0],
        &[0x11, 0, 2, 1, 1],
        &[0x17, 0, 0],
        &[0x03, 0, 5, 1, 2, 3, 4, 5],
        &[0x05, 0, 0],
        &[0x99, 0, 9, 1],
    ];
    for body in bodies {
        for mut peer in [world.connect().await, world.connect_socket().await] {
            let head = [1, 0, 0, u8::try_from(body.len()).unwrap(), 0, 0, 0, 1];
            peer.send(&[&head[..], body].concat()).await.unwrap();
            assert_eq!(peer.next().await, None, "{body:?}");
        }
        assert!(good.is_let_in().await);
    }
    let malformed = "bulla_keyless_connection_ends_total{kind=\"malformed\"}";
    until(|| world.figure(malformed) == 20.0).await;
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_parsed_from_single_bytes_and_from_large_chunks() {
    let world = World::new().await;
    let mut peer = world.connect_socket().await;
    let ping = |id: u32, payload: &[u8]| {
        let mut message = Vec::new();
        MessageItems { opcode: opcode::PING, payload, ..MessageItems::default() }
            .encode(id, &mut message)
            .unwrap();
        message
    };
    for byte in ping(0, b"drip") {
        peer.send(&[byte]).await.unwrap();
    }
    assert_eq!(peer.next().await.unwrap().payload, b"drip");
    let mut heap = Vec::new();
    for id in 0..200 {
        heap.extend(ping(id, &vec![id as u8; if id % 50 == 0 { 65_000 } else { 5 }]));
    }
    let (sender, answered) = (
        tokio::spawn(async move {
            // Split at arbitrary positions.
            for part in heap.chunks(7_777) {
                peer.send(part).await.unwrap();
                if part.len() < 7_777 {
                    break;
                }
            }
            peer
        }),
        200,
    );
    let mut peer = sender.await.unwrap();
    for id in 0..answered {
        assert_eq!(peer.next().await.unwrap().id, id);
    }
    world.running.stop().await;
}

/// A peer that keeps sending requests and never reads is disconnected. The data buffered for it is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_that_never_reads_is_disconnected() {
    const ENOUGH: usize = 2_000;
    let world = World::new().await;
    let mut good = world.connect_socket().await;
    let mut peer = world.connect_socket().await;
    let mut message = Vec::new();
    MessageItems { opcode: opcode::PING, payload: &[1; 60_000], ..MessageItems::default() }
        .encode(1, &mut message)
        .unwrap();
    let mut sent = 0;
    while sent < ENOUGH && peer.send(&message).await.is_ok() {
        sent += 1;
    }
    assert!(sent < ENOUGH, "{sent} pings of 60,000 octets were taken");
    assert!(good.is_let_in().await);
    world.running.stop().await;
}
