//! When many signatures wait and no worker is idle, they are signed in batches. No job waits for a batch to fill.

use std::sync::mpsc;
use std::time::Instant;

use keyless::stage::{Cost, Job, Responder, Stage, StageError};
use keys::{
    BATCH, BATCH_MIN, Batches, EC_BATCH_MIN, Hash, KeyType, PrivateKey, Scheme, Signer, is_batched,
    verify::verifies,
};

use crate::peer::{TIMEOUT, key};

const PSS: Scheme = Scheme::RsaPss(Hash::Sha256);
const DIGEST: [u8; 32] = [7; 32];

/// Reports its job number through a channel. With a gate, it blocks the worker until the gate opens.
struct Waiting {
    number: usize,
    gate: Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>,
    answer: mpsc::Sender<(usize, Result<Vec<u8>, StageError>)>,
}

impl Responder for Waiting {
    fn is_waiting(&self) -> bool {
        if let Some((arrived, open)) = &self.gate {
            arrived.send(()).unwrap();
            open.recv_timeout(TIMEOUT).unwrap();
        }
        true
    }

    fn respond(self, signed: Result<Vec<u8>, StageError>) {
        self.answer.send((self.number, signed)).unwrap();
    }
}

fn job(key: &PrivateKey, responder: Waiting) -> Job<Waiting> {
    Job {
        key: key.clone(),
        scheme: scheme(key.key_type()),
        input: DIGEST.into(),
        deadline: Instant::now() + TIMEOUT,
        line: 0,
        responder,
    }
}

/// Queues one job per key, all of one class, before the only worker takes any. Returns the order of the replies and the number of
/// batched jobs.
async fn answered(kinds: &[KeyType]) -> (Vec<usize>, u64) {
    let stage = Stage::start(1, Batches::All).unwrap();
    let cost = Cost::of(kinds[0]);
    let unbatched = if cost == Cost::Light { KeyType::Ed25519 } else { KeyType::P384 };
    let (answer, answers) = mpsc::channel();
    let job = |number, key: &PrivateKey, gate| job(key, Waiting { number, gate, answer: answer.clone() });
    let ((arrived, arrival), (open, opened)) = (mpsc::channel(), mpsc::channel());
    let first = job(usize::MAX, key(unbatched), Some((arrived, opened)));
    assert!(stage.submit(cost, first).is_ok());
    arrival.recv_timeout(TIMEOUT).unwrap();
    for (number, kind) in kinds.iter().enumerate() {
        key(*kind).prepare();
        assert!(stage.submit(cost, job(number, key(*kind), None)).is_ok());
    }
    assert_eq!(stage.figures(cost).waiting, kinds.len());
    open.send(()).unwrap();
    assert_eq!(answers.recv_timeout(TIMEOUT).unwrap().0, usize::MAX);
    let mut order = Vec::new();
    for _ in kinds {
        let (number, signed) = answers.recv_timeout(TIMEOUT).unwrap();
        let (key, signed) = (key(kinds[number]), signed.unwrap());
        let kind = key.key_type();
        assert!(verifies(key.spki(), kind, scheme(kind), &DIGEST, &signed), "{number} {kind}");
        order.push(number);
    }
    stage.stop().await;
    let figures = stage.figures(cost);
    assert_eq!((figures.waiting, figures.running, figures.done), (0, 0, kinds.len() as u64 + 1));
    assert_eq!((figures.working, figures.faulty), (0, 0));
    (order, figures.batched)
}

fn scheme(kind: KeyType) -> Scheme {
    match kind {
        KeyType::Rsa2048 => PSS,
        KeyType::Ed25519 => Scheme::Ed25519,
        _ => Scheme::Ecdsa(Hash::Sha256),
    }
}

#[tokio::test]
async fn queued_rsa_jobs_are_batched_and_the_rest_signed_singly() {
    // Two full batches, and too few for a third.
    let (order, batched) = answered(&[KeyType::Rsa2048; 2 * BATCH + BATCH_MIN - 1]).await;
    assert_eq!(order, (0..order.len()).collect::<Vec<_>>());
    let expected = if is_batched(KeyType::Rsa2048, PSS, Batches::All) { 2 * BATCH as u64 } else { 0 };
    assert_eq!(batched, expected);
}

/// Workers of light jobs are tasks: the gate blocks one of the runtime's threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_light_jobs_are_batched_per_key_type() {
    for kind in [KeyType::P256, KeyType::Ed25519] {
        let made = |count: usize| if is_batched(kind, scheme(kind), Batches::All) { count as u64 } else { 0 };
        let (order, batched) = answered(&[kind; 2 * BATCH + EC_BATCH_MIN - 1]).await;
        assert_eq!(order, (0..order.len()).collect::<Vec<_>>());
        assert_eq!(batched, made(2 * BATCH));
        assert_eq!(answered(&[kind; EC_BATCH_MIN]).await.1, made(EC_BATCH_MIN));
        assert_eq!(answered(&[kind; EC_BATCH_MIN - 1]).await.1, 0);
    }
    // Jobs of one key type do not fill the batch of another.
    let (p256, edwards) = (KeyType::P256, KeyType::Ed25519);
    assert_eq!(answered(&[p256, edwards, edwards, p256]).await.1, 0);
}

#[tokio::test]
async fn smallest_rsa_batch_is_the_configured_minimum() {
    let (_, batched) = answered(&[KeyType::Rsa2048; BATCH_MIN]).await;
    assert_eq!(batched, if is_batched(KeyType::Rsa2048, PSS, Batches::All) { BATCH_MIN as u64 } else { 0 });
    let (_, batched) = answered(&[KeyType::Rsa2048; BATCH_MIN - 1]).await;
    assert_eq!(batched, 0);
}

/// A worker with a batch of eight counts as one worker. Keys that were not prepared beforehand are prepared after their first
/// signature.
#[tokio::test]
async fn keys_are_batched_after_their_first_signature_by_one_worker() {
    let keys = [(); BATCH].map(|()| PrivateKey::generate(KeyType::Rsa2048).unwrap());
    let stage = Stage::start(1, Batches::All).unwrap();
    for round in 0..2 {
        let (answer, answers) = mpsc::channel();
        let ((arrived, arrival), (open, opened)) = (mpsc::channel(), mpsc::channel());
        let ((first_arrived, first_arrival), (open_first, first_opened)) = (mpsc::channel(), mpsc::channel());
        let job = |number, key: &PrivateKey, gate| job(key, Waiting { number, gate, answer: answer.clone() });
        let first = job(BATCH, key(KeyType::P384), Some((first_arrived, first_opened)));
        assert!(stage.submit(Cost::Medium, first).is_ok());
        first_arrival.recv_timeout(TIMEOUT).unwrap();
        let mut gate = Some((arrived, opened));
        for (number, key) in keys.iter().enumerate() {
            assert!(stage.submit(Cost::Medium, job(number, key, gate.take())).is_ok());
        }
        open_first.send(()).unwrap();
        arrival.recv_timeout(TIMEOUT).unwrap();
        let under_way = stage.figures(Cost::Medium);
        let is_batch = round == 1 && is_batched(KeyType::Rsa2048, PSS, Batches::All);
        assert_eq!((under_way.running, under_way.working), (if is_batch { BATCH } else { 1 }, 1), "{round}");
        open.send(()).unwrap();
        for _ in 0..=BATCH {
            assert!(answers.recv_timeout(TIMEOUT).unwrap().1.is_ok());
        }
        assert_eq!(stage.figures(Cost::Medium).batched, if is_batch { BATCH as u64 } else { 0 });
        let deadline = Instant::now() + TIMEOUT;
        while keys.iter().any(|key| key.needs_preparation(Batches::All)) {
            assert!(Instant::now() < deadline, "every key is prepared by its first signature");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    stage.stop().await;
}

#[tokio::test]
async fn job_of_another_key_type_does_not_wait_for_the_batch() {
    let (rsa, ec) = (KeyType::Rsa2048, KeyType::P384);
    let (order, batched) = answered(&[rsa, rsa, ec, rsa, rsa, rsa, ec, rsa]).await;
    if is_batched(rsa, PSS, Batches::All) {
        assert_eq!((order, batched), (vec![2, 6, 0, 1, 3, 4, 5, 7], 6));
    }
}

/// Seven jobs for four workers. Each worker takes one job before any job waits without an idle worker, and the remaining jobs are
/// too few for a batch.
#[tokio::test]
async fn no_batch_is_formed_while_workers_are_idle() {
    const WORKERS: usize = 4;
    const JOBS: usize = BATCH - 1;
    for _ in 0..8 {
        let stage = Stage::start(WORKERS, Batches::All).unwrap();
        let (answer, answers) = mpsc::channel();
        for number in 0..JOBS {
            let responder = Waiting { number, gate: None, answer: answer.clone() };
            let (input, deadline) = (DIGEST.into(), Instant::now() + TIMEOUT);
            let key = key(KeyType::Rsa2048).clone();
            let job = Job { key, scheme: PSS, input, deadline, line: 0, responder };
            assert!(stage.submit(Cost::Medium, job).is_ok());
        }
        for _ in 0..JOBS {
            assert!(answers.recv_timeout(TIMEOUT).unwrap().1.is_ok());
        }
        stage.stop().await;
        let figures = stage.figures(Cost::Medium);
        assert_eq!((figures.done, figures.batched), (JOBS as u64, 0));
    }
}

/// Half of the jobs are past their deadline. The other half is too small for a batch and is not counted as one.
#[tokio::test]
async fn expired_jobs_are_excluded_from_batches() {
    let stage = Stage::start(1, Batches::All).unwrap();
    let (answer, answers) = mpsc::channel();
    let job = |number, kind, deadline, gate| Job {
        key: key(kind).clone(),
        scheme: scheme(kind),
        input: DIGEST.into(),
        deadline,
        line: 0,
        responder: Waiting { number, gate, answer: answer.clone() },
    };
    let (now, then) = (Instant::now(), Instant::now() + TIMEOUT);
    let ((arrived, arrival), (open, opened)) = (mpsc::channel(), mpsc::channel());
    let first = job(BATCH, KeyType::P384, then, Some((arrived, opened)));
    assert!(stage.submit(Cost::Medium, first).is_ok());
    arrival.recv_timeout(TIMEOUT).unwrap();
    for number in 0..BATCH {
        let deadline = if number % 2 == 0 { now } else { then };
        assert!(stage.submit(Cost::Medium, job(number, KeyType::Rsa2048, deadline, None)).is_ok());
    }
    open.send(()).unwrap();
    for _ in 0..=BATCH {
        let (number, signed) = answers.recv_timeout(TIMEOUT).unwrap();
        let is_late = number < BATCH && number % 2 == 0;
        assert_eq!(signed.err(), is_late.then_some(StageError::Late), "{number}");
    }
    stage.stop().await;
    let figures = stage.figures(Cost::Medium);
    assert_eq!((figures.done, figures.late), (BATCH as u64 / 2 + 1, BATCH as u64 / 2));
    assert_eq!((figures.batched, figures.running, figures.waiting), (0, 0, 0));
}
