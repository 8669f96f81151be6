//! Every signature is recorded, and changed records are detected. If records cannot be stored, nothing is signed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use keyless::records::{
    Recorder, RecordsError, RecordsOptions, SegmentHead, SignatureRecord, Verified, WhenFull, verify,
};
use keyless::server::Options;
use keyless::wire::ErrorCode;
use keys::{KeyRef, KeyType, PrivateKey, Signer};
use rustls::version::TLS13;
use x509::{SpkiHash, merkle};

use crate::certificates::CLIENT_AUTH;
use crate::peer::{World, key, patient, ski};

const ECDSA: u8 = 0x15;
const ED25519: u8 = 0x18;

fn options(folder: &Path) -> RecordsOptions {
    RecordsOptions { close_after: Duration::from_secs(3_600), ..RecordsOptions::new(folder.to_owned()) }
}

async fn world(recorder: &Recorder) -> World {
    World::with(Options { records: Some(recorder.clone()), ..patient() }, Vec::new()).await
}

fn records(path: &Path) -> Vec<SignatureRecord> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    merkle::sha256(bytes).map(|byte| format!("{byte:02x}")).concat()
}

#[tokio::test]
async fn record_contains_client_key_and_input_of_each_signature() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::open(options(folder.path())).unwrap();
    let world = world(&recorder).await;
    let identity = world.client_ca.leaf(&[CLIENT_AUTH]);
    let mut peer = world.connect_with(Some(&identity), &TLS13).await.unwrap();
    let mut local = world.connect_socket().await;
    let (digest, message) = ([7; 32], [9; 1_000]);
    assert_eq!(peer.sign(ECDSA, ski(key(KeyType::P256)), &digest).await.error(), None);
    assert_eq!(local.sign(ED25519, ski(key(KeyType::Ed25519)), &message).await.error(), None);
    // Rejected requests leave no record.
    assert!(peer.sign(ECDSA, ski(key(KeyType::P256)), &[7; 31]).await.error().is_some());
    assert!(
        peer.sign(ECDSA, ski(&PrivateKey::generate(KeyType::P256).unwrap()), &digest).await.error().is_some()
    );
    assert_eq!(recorder.waiting().0, 2);
    recorder.write().unwrap();
    assert_eq!((recorder.written(), recorder.waiting().0), (2, 0));
    let found = records(&folder.path().join("open.jsonl"));
    let [first, second] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (first.tenant.as_str(), first.operation.as_str(), first.rules),
        ("default", "ecdsa-sha256", 1)
    );
    assert_eq!(first.key, SpkiHash::of(key(KeyType::P256).spki()).to_string());
    assert_eq!(first.client, Some(SpkiHash::of(identity.key.spki()).to_string()));
    assert_eq!(first.input, sha256(&digest));
    assert_eq!((second.client.as_deref(), second.operation.as_str()), (None, "ed25519"));
    assert_eq!(second.input, sha256(&message));
    assert!(first.at_us > 1_700_000_000_000_000 && second.at_us >= first.at_us);
    assert_eq!(world.figure("bulla_keyless_records_total"), 2.0);
    world.running.stop().await;
}

#[tokio::test]
async fn signatures_of_remote_keys_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::open(options(folder.path())).unwrap();
    let (gated, open) = crate::peer::Gated::new(KeyType::P256);
    let name = ski(&*gated);
    let options = Options { records: Some(recorder.clone()), ..patient() };
    let world = World::with(options, vec![gated as KeyRef]).await;
    let mut peer = world.connect_socket().await;
    open.send_replace(true);
    assert_eq!(peer.sign(ECDSA, name, &[7; 32]).await.error(), None);
    recorder.write().unwrap();
    assert_eq!(recorder.written(), 1);
    world.running.stop().await;
}

#[tokio::test]
async fn full_record_queue_rejects_signing_or_drops_records_as_configured() {
    for when_full in [WhenFull::Refuse, WhenFull::Lose] {
        let folder = tempfile::tempdir().unwrap();
        let recorder =
            Recorder::open(RecordsOptions { waiting_max: 3, when_full, ..options(folder.path()) }).unwrap();
        let world = world(&recorder).await;
        let mut peer = world.connect_socket().await;
        let name = ski(key(KeyType::P256));
        for _ in 0..3 {
            assert_eq!(peer.sign(ECDSA, name, &[7; 32]).await.error(), None);
        }
        let is_refused = when_full == WhenFull::Refuse;
        let error = peer.sign(ECDSA, name, &[7; 32]).await.error();
        assert_eq!(error, is_refused.then_some(ErrorCode::Internal as u8), "{when_full}");
        assert_eq!(recorder.lost(), u64::from(!is_refused));
        let refusals = world.figure("bulla_keyless_refusals_total{kind=\"records\"}");
        assert_eq!(refusals, if is_refused { 1.0 } else { 0.0 });
        // Writing the records frees slots in the queue.
        recorder.write().unwrap();
        assert_eq!(peer.sign(ECDSA, name, &[7; 32]).await.error(), None);
        world.running.stop().await;
    }
}

/// The folder is missing, as on a failed disk. Records wait in memory and are written when the folder is back.
#[tokio::test]
async fn records_wait_in_memory_while_writing_fails() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::open(RecordsOptions { records_max: 1, ..options(folder.path()) }).unwrap();
    let world = world(&recorder).await;
    let mut peer = world.connect_socket().await;
    let moved = folder.path().with_extension("aside");
    fs::rename(folder.path(), &moved).unwrap();
    assert_eq!(peer.sign(ECDSA, ski(key(KeyType::P256)), &[7; 32]).await.error(), None);
    assert!(matches!(recorder.write(), Err(RecordsError::File { .. })));
    assert_eq!(recorder.failures(), 1);
    fs::rename(&moved, folder.path()).unwrap();
    recorder.write().unwrap();
    assert_eq!(verify(folder.path()).unwrap().0, Verified { segments: 1, records: 1, pruned: 0 });
    world.running.stop().await;
}

/// Creates segments of two records each, written by two recorders, and one open segment.
async fn some(folder: &Path) -> Vec<SegmentHead> {
    for _ in 0..2 {
        let recorder = Recorder::open(RecordsOptions { records_max: 2, ..options(folder) }).unwrap();
        let world = world(&recorder).await;
        let mut peer = world.connect_socket().await;
        for digest in 0..5 {
            assert_eq!(peer.sign(ECDSA, ski(key(KeyType::P256)), &[digest; 32]).await.error(), None);
            recorder.write().unwrap();
        }
        world.running.stop().await;
    }
    verify(folder).unwrap().1
}

#[tokio::test]
async fn segments_are_chained_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let heads = some(folder.path()).await;
    assert_eq!(heads.iter().map(|head| head.records).collect::<Vec<_>>(), [2; 5]);
    for pair in heads.windows(2) {
        assert_eq!((pair[1].segment, &pair[1].previous), (pair[0].segment + 1, &pair[0].hash()));
    }
    let recorder = Recorder::open(options(folder.path())).unwrap();
    assert_eq!(recorder.newest().as_ref(), heads.last());
}

#[tokio::test]
async fn changed_records_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    some(folder.path()).await;
    let file = |name: &str| folder.path().join(name);
    let (second, heads) = (file("segment-0000000002.jsonl"), file("heads.jsonl"));
    let changed = |path: &Path, text: String| {
        let before = fs::read_to_string(path).unwrap();
        assert_ne!(before, text);
        fs::write(path, text).unwrap();
        let found = verify(folder.path());
        fs::write(path, before).unwrap();
        found.unwrap_err()
    };
    let text = fs::read_to_string(&second).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for other in [
        text.replace("default", "another"),
        format!("{}\n", lines[0]),
        format!("{}\n{}\n", lines[1], lines[0]),
        format!("{text}{}\n", lines[0]),
        String::new(),
    ] {
        let error = changed(&second, other);
        assert!(matches!(error, RecordsError::Records { segment: 2, .. }), "{error}");
    }
    let text = fs::read_to_string(&heads).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let without = |at: usize| {
        lines
            .iter()
            .enumerate()
            .filter(|(line, _)| *line != at)
            .map(|(_, line)| format!("{line}\n"))
            .collect()
    };
    for other in [without(0), without(2), text.replacen("\"records\":2", "\"records\":3", 1)] {
        let error = changed(&heads, other);
        assert!(matches!(error, RecordsError::Chain { .. } | RecordsError::Records { .. }), "{error}");
    }
    fs::remove_file(&second).unwrap();
    assert!(matches!(verify(folder.path()), Err(RecordsError::Records { segment: 2, .. })));
}

/// Crashes in the middle of a line, and between writing a head and renaming its segment.
#[tokio::test]
async fn crash_during_write_loses_no_complete_record() {
    let folder = tempfile::tempdir().unwrap();
    some(folder.path()).await;
    let file = |name: &str| folder.path().join(name);
    fs::rename(file("segment-0000000005.jsonl"), file("open.jsonl")).unwrap();
    let heads = fs::read_to_string(file("heads.jsonl")).unwrap();
    fs::write(file("heads.jsonl"), format!("{heads}{{\"segment\":6")).unwrap();
    drop(Recorder::open(options(folder.path())).unwrap());
    assert_eq!(verify(folder.path()).unwrap().0, Verified { segments: 5, records: 10, pruned: 0 });
    let record = fs::read_to_string(file("segment-0000000005.jsonl")).unwrap();
    let line = record.lines().next().unwrap();
    fs::write(file("open.jsonl"), format!("{line}\n{}", &line[..20])).unwrap();
    let recorder = Recorder::open(options(folder.path())).unwrap();
    recorder.close().unwrap();
    assert_eq!(verify(folder.path()).unwrap().0, Verified { segments: 6, records: 11, pruned: 0 });
}

/// The writer task writes the remaining records when it is stopped.
#[tokio::test]
async fn remaining_records_are_written_on_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::open(options(folder.path())).unwrap();
    let world = world(&recorder).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let writing = tokio::spawn(recorder.clone().run(stop.clone()));
    let mut peer = world.connect_socket().await;
    assert_eq!(peer.sign(ECDSA, ski(key(KeyType::P256)), &[7; 32]).await.error(), None);
    world.running.stop().await;
    stop.cancel();
    writing.await.unwrap();
    assert_eq!(verify(folder.path()).unwrap().0, Verified { segments: 1, records: 1, pruned: 0 });
}
