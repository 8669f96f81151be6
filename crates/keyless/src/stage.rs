//! The CPU stage, which signs with the keys of this process. There are as many concurrent signatures as processors. Each cost class
//! has a short queue, so that expensive signatures do not delay cheap ones. Within a class, each tenant has a queue that is served
//! by its share ([`crate::fair`]), so that no tenant delays the others.
//!
//! Light work (15 µs) runs on the runtime's threads, because a handover would cost as much. More expensive work has its own
//! threads; the system divides the processors between them and the runtime.
//!
//! Workers take jobs in slices. If the processor can make several signatures in parallel ([`PrivateKey::is_batched`]), a free
//! worker takes a batch when enough jobs wait and no worker is idle. No job waits for a batch to fill. A slice of light work has
//! the size of a batch anyway, and all its replies are sent together.

mod attempt;
mod pace;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use keys::{
    BATCH, BATCH_MIN, Batches, KeyType, PrivateKey, Scheme, SignError, SignJob, Signer, Slice, sign_slice,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::fair::FairQueue;
use attempt::{attempt, attempt_each};
use pace::Pace;

/// Approximate cost class of a signature.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Cost {
    /// 10 to 20 µs of CPU time per signature: P-256, Ed25519.
    Light,
    /// 80 to 300 µs: RSA of 2,048 bits, P-384, P-521.
    Medium,
    /// 700 µs to 5 ms: larger RSA.
    Heavy,
}

impl Cost {
    /// All classes, cheapest first.
    pub const ALL: [Self; 3] = [Self::Light, Self::Medium, Self::Heavy];

    /// Returns the class of a key type.
    #[must_use]
    pub const fn of(kind: KeyType) -> Self {
        match kind {
            KeyType::P256 | KeyType::Ed25519 => Self::Light,
            KeyType::Rsa3072 | KeyType::Rsa4096 => Self::Heavy,
            _ => Self::Medium,
        }
    }

    /// Returns the name of the class in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Medium => "medium",
            Self::Heavy => "heavy",
        }
    }

    /// Returns the queue limit of the class for [`FairQueue`], for one processor: about 60 ms of light work, 500 ms of medium or heavy
    /// work.
    #[must_use]
    pub const fn waiting_max(self) -> usize {
        match self {
            Self::Light => 4_096,
            Self::Medium => 2_048,
            Self::Heavy => 512,
        }
    }

    /// Returns the processor time of the most expensive key of the class, in µs.
    const fn work_max(self) -> u64 {
        match self {
            Self::Light => work(KeyType::P256, 0),
            Self::Medium => work(KeyType::P521, 0),
            Self::Heavy => work(KeyType::Rsa4096, 0),
        }
    }

    /// Returns the maximum number of jobs in a slice. `batched` is the number of waiting jobs that a batch can contain, divided by
    /// the number of free threads. For light work, see also [`Self::slice_work_max`].
    const fn slice(self, batched: usize) -> usize {
        match self {
            Self::Light => BATCH,
            Self::Medium if batched >= BATCH_MIN => BATCH,
            Self::Medium | Self::Heavy => 1,
        }
    }

    /// Returns the work in µs after which a slice takes no more jobs. For light work, this is the work of a batch of digests. The
    /// last job may exceed the limit by 230 µs (an Ed25519 message of 65,532 bytes).
    const fn slice_work_max(self) -> u64 {
        match self {
            Self::Light => BATCH as u64 * self.work_max(),
            Self::Medium | Self::Heavy => u64::MAX,
        }
    }

    /// Returns the number of threads of the class. Heavy work uses at most half of the processors.
    const fn threads(self, processors: usize) -> usize {
        match self {
            Self::Light => 0,
            Self::Medium => processors,
            Self::Heavy => processors.div_ceil(2),
        }
    }
}

/// Nice value of the signing threads: under contention, a runtime thread gets three times the processor time of a signing thread.
const NICE: i32 = 5;

/// Bytes hashed in 1 µs. Ed25519 hashes its message twice (measured speed of SHA-512: 590 MB/s). Other schemes sign a digest.
const BYTES_PER_US: u64 = 300;

/// Returns the processor time in µs that is charged to the tenant for signing a message of `bytes` bytes.
const fn work(kind: KeyType, bytes: usize) -> u64 {
    let hashing = bytes as u64 / BYTES_PER_US;
    hashing
        + match kind {
            KeyType::Ed25519 => 9,
            KeyType::P256 => 15,
            KeyType::P384 => 85,
            KeyType::Rsa2048 => 245,
            KeyType::Rsa3072 => 700,
            KeyType::Rsa4096 => 1_600,
            KeyType::P521 | KeyType::MlDsa44 | KeyType::MlDsa65 | KeyType::MlDsa87 => 300,
        }
}

/// Reason why a signature was not made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StageError {
    /// The deadline passed while the job was queued.
    Late,
    /// The key returned an error.
    Key(SignError),
}

/// Callback that receives the signature of a job.
pub trait Responder: Send + 'static {
    /// Returns whether the caller still waits for the signature. Called immediately before signing.
    fn is_waiting(&self) -> bool;

    /// Records that the job leaves the queue. Returns its time in the queue.
    fn started(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Delivers the signature or the error. Not called if the caller no longer waits.
    fn respond(self, signed: Result<Vec<u8>, StageError>);
}

/// A request for a signature.
#[derive(Debug)]
pub struct Job<A> {
    /// The signing key.
    pub key: PrivateKey,
    /// Signature scheme, which must fit the key ([`Scheme::check`]).
    pub scheme: Scheme,
    /// The digest or message to sign.
    pub input: Box<[u8]>,
    /// Deadline. A later result is discarded.
    pub deadline: Instant,
    /// Number of the tenant's queue.
    pub line: usize,
    /// Callback that receives the result.
    pub responder: A,
}

/// A queued job, and whether a batch can contain it. The flag is stored because the answer may change while the job is queued; the
/// counter of such jobs thus stays correct.
struct StageJob<A> {
    job: Job<A>,
    batched: bool,
}

/// State and totals of a cost class.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LaneFigures {
    /// Jobs in the queue.
    pub waiting: usize,
    /// Jobs that a worker has taken.
    pub running: usize,
    /// Workers that have taken jobs.
    pub working: usize,
    /// Completed jobs.
    pub done: u64,
    /// Completed jobs that were signed in batches.
    pub batched: u64,
    /// Signatures from a batch that failed verification. They are never sent; their jobs are signed again.
    pub faulty: u64,
    /// Jobs rejected because the queue was full.
    pub refused: u64,
    /// Jobs whose deadline passed in the queue.
    pub late: u64,
    /// Jobs that the caller cancelled.
    pub unwanted: u64,
    /// Total time that workers spent on signatures.
    pub busy: Duration,
    /// Total time of jobs in the queue.
    pub waited: Duration,
}

/// Functions of the signature library. Tests replace them.
#[derive(Clone, Copy)]
struct Library {
    sign: fn(&[SignJob<'_>], Batches) -> Slice,
    prepare: fn(&PrivateKey),
    prepare_tables: fn(Batches),
}

const LIBRARY: Library =
    Library { sign: sign_slice, prepare: PrivateKey::prepare, prepare_tables: keys::prepare_tables };

/// The queue and counters of one class.
struct Lane<A> {
    cost: Cost,
    workers: usize,
    pace: Pace,
    batches: Batches,
    library: Library,
    queue: Mutex<Queue<A>>,
    /// Wakes the waiting threads when jobs arrive.
    filled: Condvar,
    /// Wakes the waiting tasks when jobs arrive.
    filled_task: Notify,
    waiting: AtomicUsize,
    running: AtomicUsize,
    working: AtomicUsize,
    done: AtomicU64,
    batched: AtomicU64,
    faulty: AtomicU64,
    refused: AtomicU64,
    late: AtomicU64,
    unwanted: AtomicU64,
    busy_ns: AtomicU64,
    waited_ns: AtomicU64,
}

struct Queue<A> {
    jobs: FairQueue<StageJob<A>>,
    /// Number of queued jobs that can be signed in batches.
    batched: usize,
    /// Number of idle threads, including those that have not started yet.
    idle: usize,
    closed: bool,
}

/// The CPU stage. Clones share its threads and tasks, which end with [`Stage::stop`].
pub struct Stage<A: Responder> {
    inner: Arc<Workers<A>>,
}

struct Workers<A> {
    lanes: [Arc<Lane<A>>; 3],
    stopping: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    processors: usize,
    batches: Batches,
}

impl<A: Responder> Clone for Stage<A> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<A: Responder> std::fmt::Debug for Stage<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("processors", &self.inner.processors).finish_non_exhaustive()
    }
}

impl<A: Responder> Stage<A> {
    /// Starts a stage on this runtime for `processors` processors. `batches` selects the key types that are signed in batches.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(processors: usize, batches: Batches) -> std::io::Result<Self> {
        Self::start_with(processors, batches, LIBRARY)
    }

    fn start_with(processors: usize, batches: Batches, library: Library) -> std::io::Result<Self> {
        let lane = |cost: Cost| Arc::new(Lane::new(cost, processors, batches, library));
        let lanes = Cost::ALL.map(lane);
        let stopping = CancellationToken::new();
        let (mut tasks, mut threads) = (JoinSet::new(), Vec::new());
        for lane in &lanes {
            for number in 0..lane.cost.threads(processors) {
                let own = Arc::clone(lane);
                let named = thread::Builder::new().name(format!("sign-{}-{number}", lane.cost.name()));
                threads.push(named.spawn(move || {
                    lower_priority();
                    own.work_on_thread();
                })?);
            }
        }
        // A separate thread computes the tables, so that no task is blocked. Only a key that is prepared in the first milliseconds
        // waits for the tables.
        let tables = thread::Builder::new().name("sign-tables".to_owned());
        threads.push(tables.spawn(move || {
            lower_priority();
            (library.prepare_tables)(batches);
        })?);
        for _ in 0..processors {
            tasks.spawn(Arc::clone(&lanes[Cost::Light as usize]).work_as_task(stopping.clone()));
        }
        let (tasks, threads) = (Mutex::new(tasks), Mutex::new(threads));
        Ok(Self { inner: Arc::new(Workers { lanes, stopping, tasks, threads, processors, batches }) })
    }

    /// Queues a signature; the responder gets the result later.
    ///
    /// # Errors
    /// Returns the job if its queue is full ([`Cost::waiting_max`]), its deadline cannot be met, or the stage has stopped.
    pub fn submit(&self, cost: Cost, job: Job<A>) -> Result<(), Box<Job<A>>> {
        self.lane(cost).put(job)
    }

    /// Sets the shares of the queues of every class, by number; 0 disables a queue. At first there is only queue 0. Waiting jobs
    /// stay.
    pub fn set_shares(&self, shares: &[u32]) {
        for lane in &self.inner.lanes {
            lane.queue.lock().jobs.set_shares(shares);
        }
    }

    /// Returns the queue length of a class, its jobs in progress, and its totals since the start.
    #[must_use]
    pub fn figures(&self, cost: Cost) -> LaneFigures {
        let lane = self.lane(cost);
        LaneFigures {
            waiting: lane.waiting.load(Relaxed),
            running: lane.running.load(Relaxed),
            working: lane.working.load(Relaxed),
            // Read before `done`, which includes these jobs.
            batched: lane.batched.load(Relaxed),
            faulty: lane.faulty.load(Relaxed),
            done: lane.done.load(Relaxed),
            refused: lane.refused.load(Relaxed),
            late: lane.late.load(Relaxed),
            unwanted: lane.unwanted.load(Relaxed),
            busy: Duration::from_nanos(lane.busy_ns.load(Relaxed)),
            waited: Duration::from_nanos(lane.waited_ns.load(Relaxed)),
        }
    }

    /// Returns the configured key types for batches. They take effect only if the processor supports batches.
    #[must_use]
    pub fn batches(&self) -> Batches {
        self.inner.batches
    }

    /// Returns the number of workers of a class. Each makes one signature at a time, or a batch of up to [`BATCH`].
    #[must_use]
    pub fn running_max(&self, cost: Cost) -> usize {
        match cost.threads(self.inner.processors) {
            0 => self.inner.processors,
            threads => threads,
        }
    }

    /// Stops accepting jobs, drops the queued ones, and waits for those in progress.
    #[crate::boxed]
    pub async fn stop(&self) {
        self.inner.stopping.cancel();
        for lane in &self.inner.lanes {
            lane.close();
        }
        let mut tasks = std::mem::take(&mut *self.inner.tasks.lock());
        while tasks.join_next().await.is_some() {}
        let threads = std::mem::take(&mut *self.inner.threads.lock());
        // A thread ends within one signature.
        let joined = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|t| drop(t.join())));
        drop(joined.await);
    }

    fn lane(&self, cost: Cost) -> &Lane<A> {
        &self.inner.lanes[cost as usize]
    }
}

impl<A> Drop for Workers<A> {
    fn drop(&mut self) {
        self.stopping.cancel();
        for lane in &self.lanes {
            lane.close();
        }
    }
}

impl<A> Lane<A> {
    fn new(cost: Cost, processors: usize, batches: Batches, library: Library) -> Self {
        let threads = cost.threads(processors);
        Self {
            cost,
            workers: if threads == 0 { processors } else { threads },
            pace: Pace::default(),
            batches,
            library,
            queue: Mutex::new(Queue {
                jobs: FairQueue::new(cost.waiting_max(), cost.work_max()),
                batched: 0,
                idle: threads,
                closed: false,
            }),
            filled: Condvar::new(),
            filled_task: Notify::new(),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            working: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            batched: AtomicU64::new(0),
            faulty: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            late: AtomicU64::new(0),
            unwanted: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
        }
    }

    fn close(&self) {
        let dropped = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            queue.batched = 0;
            queue.jobs.take_all()
        };
        self.waiting.store(0, Relaxed);
        self.filled.notify_all();
        self.filled_task.notify_waiters();
        // Outside of the lock: dropping a responder may send a reply.
        drop(dropped);
    }

    fn put(&self, job: Job<A>) -> Result<(), Box<Job<A>>> {
        {
            let mut queue = self.queue.lock();
            let (line, work) = (job.line, work(job.key.key_type(), job.input.len()));
            let batched = job.key.is_batched(job.scheme, self.batches);
            // A job whose deadline would pass in the queue is rejected now, so that the caller can try another node.
            let wait = self.pace.wait(queue.jobs.queue_len(line), self.workers);
            let is_hopeless = wait > Duration::ZERO && job.deadline < Instant::now() + wait;
            let queued = StageJob { job, batched };
            let put =
                if queue.closed || is_hopeless { Err(queued) } else { queue.jobs.put(line, work, queued) };
            queue.batched += usize::from(put.is_ok() && batched);
            self.waiting.store(queue.jobs.waiting(), Relaxed);
            if let Err(refused) = put {
                drop(queue);
                self.refused.fetch_add(1, Relaxed);
                return Err(Box::new(refused.job));
            }
        }
        match self.cost {
            Cost::Light => self.filled_task.notify_one(),
            Cost::Medium | Cost::Heavy => drop(self.filled.notify_one()),
        }
        Ok(())
    }

    /// Takes a slice of queued jobs. Returns false if there are none. Idle threads are considered, so that a batch takes no jobs
    /// that an idle thread would do immediately.
    fn take(&self, queue: &mut Queue<A>, slice: &mut Vec<StageJob<A>>) -> bool {
        let most = self.cost.slice(queue.batched / (queue.idle + 1));
        let mut taken = 0_u64;
        while slice.len() < most
            && taken < self.cost.slice_work_max()
            && let Some(queued) = queue.jobs.take()
        {
            queue.batched -= usize::from(queued.batched);
            taken += work(queued.job.key.key_type(), queued.job.input.len());
            slice.push(queued);
        }
        self.running.fetch_add(slice.len(), Relaxed);
        self.waiting.store(queue.jobs.waiting(), Relaxed);
        !slice.is_empty()
    }
}

impl<A: Responder> Lane<A> {
    async fn work_as_task(self: Arc<Self>, stopping: CancellationToken) {
        let _live = telemetry::tasks::guard("keyless-signing");
        let mut slice = Vec::with_capacity(self.cost.slice(0));
        loop {
            let found = self.take(&mut self.queue.lock(), &mut slice);
            if !found {
                // A job that is queued meanwhile leaves a permit, so the next wait returns immediately.
                tokio::select! {
                    () = stopping.cancelled() => return,
                    () = self.filled_task.notified() => continue,
                }
            }
            self.working.fetch_add(1, Relaxed);
            let unprepared = self.sign(&mut slice);
            self.prepare(&unprepared);
            self.working.fetch_sub(1, Relaxed);
            tokio::task::yield_now().await;
        }
    }

    fn work_on_thread(self: Arc<Self>) {
        let mut slice = Vec::with_capacity(BATCH);
        let mut queue = self.queue.lock();
        queue.idle -= 1;
        loop {
            while !self.take(&mut queue, &mut slice) {
                if queue.closed {
                    return;
                }
                queue.idle += 1;
                self.filled.wait(&mut queue);
                queue.idle -= 1;
            }
            MutexGuard::unlocked(&mut queue, || self.sign_batch(&mut slice));
        }
    }

    /// Signs the single jobs of a slice first and its batch last, because all replies of a batch are sent together. Prepares keys
    /// after all replies are sent.
    fn sign_batch(&self, slice: &mut Vec<StageJob<A>>) {
        self.working.fetch_add(1, Relaxed);
        let (mut batch, mut alone): (Vec<_>, Vec<_>) = slice.drain(..).partition(|queued| queued.batched);
        if batch.len() < BATCH_MIN {
            alone.append(&mut batch);
        }
        let mut unprepared = Vec::new();
        for queued in alone {
            slice.push(queued);
            unprepared.append(&mut self.sign(slice));
        }
        if !batch.is_empty() {
            unprepared.append(&mut self.sign(&mut batch));
        }
        self.prepare(&unprepared);
        self.working.fetch_sub(1, Relaxed);
    }

    /// Signs the jobs that are still wanted, and replies to all. Returns keys that need preparation for batches.
    fn sign(&self, slice: &mut Vec<StageJob<A>>) -> Vec<PrivateKey> {
        let began = Instant::now();
        let taken = slice.len();
        let mut wanted = Vec::with_capacity(taken);
        let mut waited = Duration::ZERO;
        for StageJob { mut job, .. } in slice.drain(..) {
            waited += job.responder.started();
            if !job.responder.is_waiting() {
                self.unwanted.fetch_add(1, Relaxed);
            } else if job.deadline <= began {
                self.late.fetch_add(1, Relaxed);
                job.responder.respond(Err(StageError::Late));
            } else {
                wanted.push(job);
            }
        }
        self.waited_ns.fetch_add(nanos(waited), Relaxed);
        let jobs: Vec<SignJob<'_>> = wanted
            .iter()
            .map(|job| SignJob { key: &job.key, scheme: job.scheme, input: &job.input })
            .collect();
        let Slice { signed, batched, faulty } =
            attempt(&jobs, |jobs| (self.library.sign)(jobs, self.batches));
        let unprepared =
            jobs.iter().filter(|job| job.key.needs_preparation(self.batches)).map(|job| job.key.clone());
        let unprepared: Vec<PrivateKey> = unprepared.collect();
        let took = began.elapsed();
        self.pace.observe(took, wanted.len());
        self.busy_ns.fetch_add(nanos(took), Relaxed);
        self.done.fetch_add(wanted.len() as u64, Relaxed);
        self.batched.fetch_add(batched as u64, Relaxed);
        self.faulty.fetch_add(faulty as u64, Relaxed);
        self.running.fetch_sub(taken, Relaxed);
        for (job, signed) in wanted.into_iter().zip(signed) {
            job.responder.respond(signed.map_err(StageError::Key));
        }
        unprepared
    }

    /// Prepares these keys for batches, once for each key. Called after the signatures are sent, so that no reply waits for the
    /// preparation.
    fn prepare(&self, unprepared: &[PrivateKey]) {
        if !unprepared.is_empty() {
            let began = Instant::now();
            attempt_each(unprepared, self.library.prepare);
            self.busy_ns.fetch_add(nanos(began.elapsed()), Relaxed);
        }
    }
}

/// Lowers the priority of this thread: connections, health checks and pings of other nodes have precedence over long signatures.
fn lower_priority() {
    // If the system refuses, signatures are made with normal priority.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "cannot lower the priority of a signing thread");
    }
}

fn nanos(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::metrics::{Metrics, register_stage};

    struct NoResponder;

    impl Responder for NoResponder {
        fn is_waiting(&self) -> bool {
            true
        }

        fn respond(self, _: Result<Vec<u8>, StageError>) {}
    }

    /// Reports one faulty signature in every slice.
    fn faulty(jobs: &[SignJob<'_>], batches: Batches) -> Slice {
        Slice { faulty: 1, ..sign_slice(jobs, batches) }
    }

    #[tokio::test]
    async fn faulty_signatures_are_counted_in_metrics() {
        let stage = Stage::start_with(1, Batches::All, Library { sign: faulty, ..LIBRARY }).unwrap();
        let metrics = Metrics::default();
        register_stage(&metrics, &stage);
        let figures = || {
            let (mut registry, mut text) = (Registry::default(), String::new());
            metrics.register(&mut registry);
            encode(&mut text, &registry).unwrap();
            text
        };
        let figure = |count| format!("bulla_keyless_stage_faulty_total{{cost=\"medium\"}} {count}\n");
        assert!(figures().contains(&figure(0)), "{}", figures());
        let key = PrivateKey::generate(KeyType::P384).unwrap();
        let scheme = Scheme::Ecdsa(keys::Hash::Sha256);
        let deadline = Instant::now() + Duration::from_secs(60);
        let job = Job { key, scheme, input: [7; 32].into(), deadline, line: 0, responder: NoResponder };
        assert!(stage.submit(Cost::Medium, job).is_ok());
        let done = async {
            while stage.figures(Cost::Medium).done == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), done).await.unwrap();
        stage.stop().await;
        assert!(figures().contains(&figure(1)), "{}", figures());
    }

    #[tokio::test]
    async fn metrics_show_which_key_types_are_batched() {
        for (batches, chosen) in
            [(Batches::Off, [false; 3]), (Batches::Rsa, [true, false, false]), (Batches::All, [true; 3])]
        {
            let stage: Stage<NoResponder> = Stage::start(1, batches).unwrap();
            let (metrics, mut registry, mut text) = (Metrics::default(), Registry::default(), String::new());
            register_stage(&metrics, &stage);
            metrics.register(&mut registry);
            encode(&mut text, &registry).unwrap();
            for (kind, is_chosen) in keys::BATCH_KINDS.into_iter().zip(chosen) {
                let made = u8::from(is_chosen && keys::batches_are_made(kind, Batches::All));
                let figure = format!("bulla_keyless_batches{{key_type=\"{kind}\"}} {made}.0\n");
                assert!(text.contains(&figure), "{figure}{text}");
            }
            stage.stop().await;
        }
    }

    /// With a temporarily slow library, jobs that cannot meet their deadline are rejected immediately, and all others are accepted.
    #[test]
    fn job_that_would_miss_its_deadline_is_rejected_on_arrival() {
        let lane = Lane::new(Cost::Light, 2, Batches::Off, LIBRARY);
        lane.queue.lock().jobs.set_shares(&[1, 1]);
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let put = |line, within_s| {
            let deadline = Instant::now() + Duration::from_secs(within_s);
            let (key, scheme) = (key.clone(), Scheme::Ecdsa(keys::Hash::Sha256));
            lane.put(Job { key, scheme, input: [7; 32].into(), deadline, line, responder: NoResponder })
                .is_ok()
        };
        // Two workers, and one minute for each job.
        lane.pace.observe(Duration::from_secs(60), 1);
        assert!(put(0, 5), "nobody waits: it is tried");
        assert!((0..9).all(|_| put(0, 3_600)), "5 minutes");
        assert!(!put(0, 200) && put(0, 3_600));
        assert!(put(1, 5), "another line waits for nobody of this one");
        assert_eq!((lane.refused.load(Relaxed), lane.waiting.load(Relaxed)), (1, 12));
        // The library is fast again: 100 fast signatures lower the estimated wait.
        let mut slice = Vec::new();
        while lane.take(&mut lane.queue.lock(), &mut slice) {
            lane.sign(&mut slice);
        }
        (0..100).for_each(|_| lane.pace.observe(Duration::from_micros(20), 1));
        assert!((0..100).all(|_| put(0, 5)));
        assert_eq!(lane.refused.load(Relaxed), 1);
    }

    /// Signing threads have a lower priority than the threads of connections.
    #[tokio::test]
    async fn signing_threads_have_lower_priority() {
        fn nice_of(name: &str) -> Option<i32> {
            std::fs::read_dir("/proc/self/task").unwrap().flatten().find_map(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
                let (before, fields) = stat.rsplit_once(") ")?;
                before.ends_with(&format!("({name}")).then(|| fields.split(' ').nth(16)?.parse().ok())?
            })
        }
        let stage: Stage<NoResponder> = Stage::start(1, Batches::Off).unwrap();
        let lowered = async {
            while !["sign-medium-0", "sign-heavy-0"].iter().all(|name| nice_of(name) == Some(NICE)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), lowered).await.expect("their priority is lowered");
        stage.stop().await;
    }

    /// Curve tables are only computed for batches that are enabled.
    #[tokio::test]
    async fn only_enabled_key_types_are_signed_in_batches() {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        key.prepare();
        let (scheme, deadline) =
            (Scheme::Ecdsa(keys::Hash::Sha256), Instant::now() + Duration::from_secs(60));
        for batches in [Batches::Rsa, Batches::All] {
            let lane = Lane::new(Cost::Light, 1, batches, LIBRARY);
            for _ in 0..BATCH {
                let (key, input) = (key.clone(), [7; 32].into());
                assert!(
                    lane.put(Job { key, scheme, input, deadline, line: 0, responder: NoResponder }).is_ok()
                );
            }
            let mut slice = Vec::new();
            assert!(lane.take(&mut lane.queue.lock(), &mut slice));
            assert!(lane.sign(&mut slice).is_empty());
            let is_made = keys::batches_are_made(KeyType::P256, batches);
            assert_eq!(lane.batched.load(Relaxed), if is_made { BATCH as u64 } else { 0 }, "{batches}");
        }
    }

    #[tokio::test]
    async fn curve_tables_are_prepared_once_on_a_separate_thread() {
        static MADE_ON: Mutex<Vec<Option<String>>> = Mutex::new(Vec::new());
        fn prepare_tables(_: Batches) {
            MADE_ON.lock().push(thread::current().name().map(str::to_owned));
        }
        let stage: Stage<NoResponder> =
            Stage::start_with(3, Batches::All, Library { prepare_tables, ..LIBRARY }).unwrap();
        stage.stop().await;
        assert_eq!(*MADE_ON.lock(), [Some("sign-tables".to_owned())]);
    }

    /// Long messages make slices shorter; digests do not.
    #[test]
    fn slice_of_light_jobs_is_limited_by_message_length() {
        let lane = Lane::new(Cost::Light, 1, Batches::All, LIBRARY);
        let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let taken = |bytes: usize| {
            for _ in 0..BATCH {
                let input = vec![7_u8; bytes].into_boxed_slice();
                let (key, scheme) = (key.clone(), Scheme::Ed25519);
                assert!(
                    lane.put(Job { key, scheme, input, deadline, line: 0, responder: NoResponder }).is_ok()
                );
            }
            let mut slices = Vec::new();
            loop {
                let mut slice = Vec::new();
                if !lane.take(&mut lane.queue.lock(), &mut slice) {
                    return slices;
                }
                slices.push(slice.len());
            }
        };
        assert_eq!(taken(32), [BATCH]);
        // Each job costs 59 µs: 9 µs for the signature and 50 µs for hashing.
        assert_eq!(taken(15_000), [3, 3, 2]);
        assert_eq!(taken(65_532), [1; BATCH]);
    }

    #[test]
    fn keys_are_prepared_after_all_replies_and_may_panic() {
        /// Number of signed jobs in each call; 0 for the preparation of a key.
        static CALLS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        fn sign(jobs: &[SignJob<'_>], batches: Batches) -> Slice {
            CALLS.lock().push(jobs.len());
            sign_slice(jobs, batches)
        }
        fn prepare(_: &PrivateKey) {
            CALLS.lock().push(0);
            panic!("a fault of the library");
        }
        let lane = Lane::new(Cost::Medium, 1, Batches::All, Library { sign, prepare, ..LIBRARY });
        let [rsa, other] = [KeyType::Rsa2048, KeyType::P384].map(|kind| PrivateKey::generate(kind).unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        let job = |key: &PrivateKey, scheme| Job {
            key: key.clone(),
            scheme,
            input: [7; 32].into(),
            deadline,
            line: 0,
            responder: NoResponder,
        };
        let alone = || job(&rsa, Scheme::RsaPkcs1(keys::Hash::Sha256));
        let mut slice =
            vec![StageJob { job: alone(), batched: false }, StageJob { job: alone(), batched: false }];
        slice.extend(
            (0..BATCH_MIN)
                .map(|_| StageJob { job: job(&other, Scheme::Ecdsa(keys::Hash::Sha256)), batched: true }),
        );
        lane.sign_batch(&mut slice);
        let mut wanted = vec![1, 1, BATCH_MIN];
        // Without processor support for batches, no key is prepared.
        wanted.resize(if rsa.needs_preparation(Batches::All) { 5 } else { 3 }, 0);
        assert_eq!(*CALLS.lock(), wanted);
        assert_eq!(lane.working.load(Relaxed), 0);
    }
}
