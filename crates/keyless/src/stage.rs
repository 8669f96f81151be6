//! The CPU stage: where keys of this process sign. As many signatures at once as there are processors, with a short queue
//! for each class of cost, so that the dear ones do not delay the cheap ones, and within a class a line for each tenant,
//! served by its share ([`crate::fair`]), so that nobody's crowd delays the others.
//!
//! Light work (15 µs) runs on the runtime's own threads, for handing it over costs as much; dearer work has threads of its
//! own, among which and the runtime's the system shares the processors fairly. Work is taken in slices. Where the processor
//! makes several signatures at once ([`PrivateKey::is_batched`]) and so many wait that it is worth it, anyone who comes free while
//! nobody is idle takes a batch of them; nobody waits for a batch to fill. A slice of light work is as many as a batch anyway, and
//! answered when all of it is made: what of it makes a batch is only answered sooner.

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

use crate::fair::Fair;
use attempt::{attempt, attempt_each};
use pace::Pace;

/// What a signature costs, roughly.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Cost {
    /// 10 to 20 µs: P-256, Ed25519.
    Light,
    /// 80 to 300 µs: RSA of 2,048 bits, P-384, P-521.
    Medium,
    /// 700 µs to 5 ms: larger RSA.
    Heavy,
}

impl Cost {
    /// Every class.
    pub const ALL: [Self; 3] = [Self::Light, Self::Medium, Self::Heavy];

    /// Of a key of this kind.
    #[must_use]
    pub const fn of(kind: KeyType) -> Self {
        match kind {
            KeyType::P256 | KeyType::Ed25519 => Self::Light,
            KeyType::Rsa3072 | KeyType::Rsa4096 => Self::Heavy,
            _ => Self::Medium,
        }
    }

    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Medium => "medium",
            Self::Heavy => "heavy",
        }
    }

    /// Jobs that may wait where one line is alone ([`Fair`]): some 60 ms of light work, some 500 ms of medium and heavy
    /// work, for one processor.
    #[must_use]
    pub const fn waiting_max(self) -> usize {
        match self {
            Self::Light => 4_096,
            Self::Medium => 2_048,
            Self::Heavy => 512,
        }
    }

    /// Processor time of the dearest key of the class, µs.
    const fn dearest(self) -> u64 {
        match self {
            Self::Light => work(KeyType::P256, 0),
            Self::Medium => work(KeyType::P521, 0),
            Self::Heavy => work(KeyType::Rsa4096, 0),
        }
    }

    /// Jobs taken at once where so many wait for each free thread that are made in batches, and a batch with what stands between its
    /// jobs; of light work as many as [`Self::slice_work`] allows.
    const fn slice(self, batched: usize) -> usize {
        match self {
            Self::Light => BATCH,
            Self::Medium if batched >= BATCH_MIN => BATCH,
            Self::Medium | Self::Heavy => 1,
        }
    }

    /// Work, µs, after which no more is taken at once: of light work that of a batch of digests, after which others have their turn.
    /// With the last job it may be 230 more, for a message of Ed25519 of 65,532 bytes.
    const fn slice_work(self) -> u64 {
        match self {
            Self::Light => BATCH as u64 * self.dearest(),
            Self::Medium | Self::Heavy => u64::MAX,
        }
    }

    /// Threads of its own; heavy work leaves half of the processors to the rest even before the system shares them.
    const fn threads(self, processors: usize) -> usize {
        match self {
            Self::Light => 0,
            Self::Medium => processors,
            Self::Heavy => processors.div_ceil(2),
        }
    }
}

/// The nice value of threads that sign: where processors are short, the runtime's threads get three times the time of one of them.
const NICE: i32 = 5;

/// Bytes that are hashed in 1 µs, twice as Ed25519 does (SHA-512 takes in 590 MB/s here). What others sign is a digest.
const OCTETS_PER_US: u64 = 300;

/// Processor time of a signature of so many bytes by a key of this kind, µs, as far as tenants are charged for it.
const fn work(kind: KeyType, octets: usize) -> u64 {
    let hashing = octets as u64 / OCTETS_PER_US;
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

/// Why there is no signature.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StageError {
    /// Its deadline passed before its turn came. It was not made.
    Late,
    /// The key refused.
    Key(SignError),
}

/// Receives the signature of a job.
pub trait Responder: Send + 'static {
    /// Whether the caller still waits. Called just before signing.
    fn is_waiting(&self) -> bool;

    /// The job leaves the queue. Returns how long it waited.
    fn started(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Delivers the signature or the error. Not called when nobody waits.
    fn respond(self, signed: Result<Vec<u8>, StageError>);
}

/// A signature to be made.
#[derive(Debug)]
pub struct Job<A> {
    /// By which key.
    pub key: PrivateKey,
    /// How; fits the key ([`Scheme::check`]).
    pub scheme: Scheme,
    /// The digest or message to sign.
    pub input: Box<[u8]>,
    /// After the deadline the result is discarded.
    pub deadline: Instant,
    /// In which line it waits: that of its tenant.
    pub line: usize,
    /// The requester.
    pub responder: A,
}

/// A job that waits, and whether it is made in a batch: as was answered when it came, so that what is counted stays true.
struct Queued<A> {
    job: Job<A>,
    batched: bool,
}

/// What a class has done and has to do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LaneFigures {
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs being done, and those that a thread has taken to be done next.
    pub running: usize,
    /// Workers that have some of those.
    pub working: usize,
    /// Jobs done.
    pub done: u64,
    /// Of them those done in batches.
    pub batched: u64,
    /// Signatures that a batch made and that failed its check. None left; they were made again.
    pub faulty: u64,
    /// Jobs refused because the queue was full.
    pub refused: u64,
    /// Jobs whose deadline passed while they waited.
    pub late: u64,
    /// Jobs whose caller cancelled.
    pub unwanted: u64,
    /// Time spent signing.
    pub busy: Duration,
    /// Time that jobs waited for their turn.
    pub waited: Duration,
}

/// The implementation that signs.
#[derive(Clone, Copy)]
struct Library {
    sign: fn(&[SignJob<'_>], Batches) -> Slice,
    prepare: fn(&PrivateKey),
    prepare_tables: fn(Batches),
}

const LIBRARY: Library =
    Library { sign: sign_slice, prepare: PrivateKey::prepare, prepare_tables: keys::prepare_tables };

/// The queue of one class and what is known of it.
struct Lane<A> {
    cost: Cost,
    workers: usize,
    pace: Pace,
    batches: Batches,
    library: Library,
    queue: Mutex<Queue<A>>,
    /// For the threads.
    filled: Condvar,
    /// For the tasks.
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
    jobs: Fair<Queued<A>>,
    /// Of the jobs those that are made in batches.
    batched: usize,
    /// Threads without work, with those that have not begun.
    idle: usize,
    closed: bool,
}

/// The stage. Cheap to clone; the clones share its threads and tasks, which end by [`Stage::stop`].
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
    /// Starts a stage on this runtime for so many processors, which makes these signatures in batches.
    ///
    /// # Errors
    /// What the system says when it starts no thread.
    pub fn start(processors: usize, batches: Batches) -> std::io::Result<Self> {
        Self::start_by(processors, batches, LIBRARY)
    }

    fn start_by(processors: usize, batches: Batches, library: Library) -> std::io::Result<Self> {
        let lane = |cost: Cost| Arc::new(Lane::new(cost, processors, batches, library));
        let lanes = Cost::ALL.map(lane);
        let stopping = CancellationToken::new();
        let (mut tasks, mut threads) = (JoinSet::new(), Vec::new());
        for lane in &lanes {
            for number in 0..lane.cost.threads(processors) {
                let own = Arc::clone(lane);
                let named = thread::Builder::new().name(format!("sign-{}-{number}", lane.cost.name()));
                threads.push(named.spawn(move || {
                    yield_to_others();
                    own.work_on_thread();
                })?);
            }
        }
        // No task makes them, unless a key is prepared within the first milliseconds: it waits for them then.
        let tables = thread::Builder::new().name("sign-tables".to_owned());
        threads.push(tables.spawn(move || {
            yield_to_others();
            (library.prepare_tables)(batches);
        })?);
        for _ in 0..processors {
            tasks.spawn(Arc::clone(&lanes[Cost::Light as usize]).work_as_task(stopping.clone()));
        }
        let (tasks, threads) = (Mutex::new(tasks), Mutex::new(threads));
        Ok(Self { inner: Arc::new(Workers { lanes, stopping, tasks, threads, processors, batches }) })
    }

    /// Has a signature made; the responder gets its answer later, or here and now the job is given back because its line is
    /// full ([`Cost::waiting_max`]), or because the stage has stopped.
    ///
    /// # Errors
    /// The job.
    pub fn submit(&self, cost: Cost, job: Job<A>) -> Result<(), Box<Job<A>>> {
        self.lane(cost).put(job)
    }

    /// Gives the lines of every class these shares, by their numbers; 0 is a line not in use. At the start there is line 0
    /// alone. What waits stays.
    pub fn set_shares(&self, shares: &[u32]) {
        for lane in &self.inner.lanes {
            lane.queue.lock().jobs.set_shares(shares);
        }
    }

    /// How a class does.
    #[must_use]
    pub fn figures(&self, cost: Cost) -> LaneFigures {
        let lane = self.lane(cost);
        LaneFigures {
            waiting: lane.waiting.load(Relaxed),
            running: lane.running.load(Relaxed),
            working: lane.working.load(Relaxed),
            // Before those done, of which they are.
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

    /// Which signatures are made in batches, where the processor can.
    #[must_use]
    pub fn batches(&self) -> Batches {
        self.inner.batches
    }

    /// How many workers a class has. Each makes one signature at a time, or up to [`BATCH`] as one.
    #[must_use]
    pub fn running_max(&self, cost: Cost) -> usize {
        match cost.threads(self.inner.processors) {
            0 => self.inner.processors,
            threads => threads,
        }
    }

    /// Takes no more jobs, drops those that wait, and ends when those under way have.
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
                jobs: Fair::new(cost.waiting_max(), cost.dearest()),
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
        // Outside of the lock: a responder that is dropped may reply.
        drop(dropped);
    }

    fn put(&self, job: Job<A>) -> Result<(), Box<Job<A>>> {
        {
            let mut queue = self.queue.lock();
            let (line, work) = (job.line, work(job.key.key_type(), job.input.len()));
            let batched = job.key.is_batched(job.scheme, self.batches);
            // What would only be found late when its turn comes is refused now: the caller can still go elsewhere.
            let wait = self.pace.wait(queue.jobs.waiting_in(line), self.workers);
            let is_hopeless = wait > Duration::ZERO && job.deadline < Instant::now() + wait;
            let queued = Queued { job, batched };
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

    /// A slice of what waits, into `slice`. False when there is nothing, or no more ever. Threads that are idle have their
    /// part of what waits, so that no batch is made of what they would do at once.
    fn take(&self, queue: &mut Queue<A>, slice: &mut Vec<Queued<A>>) -> bool {
        let most = self.cost.slice(queue.batched / (queue.idle + 1));
        let mut taken = 0_u64;
        while slice.len() < most
            && taken < self.cost.slice_work()
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
                // What is put in meanwhile leaves its mark for the next to wait.
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

    /// A batch as one, and before it the jobs between, each by itself: a slice's answers come when all of it is made. Keys are
    /// prepared when all have their answers.
    fn sign_batch(&self, slice: &mut Vec<Queued<A>>) {
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

    /// Makes the signatures that are still wanted, and tells the askers of all, which then run no more. Gives back the keys of which
    /// batches need what is not made yet.
    fn sign(&self, slice: &mut Vec<Queued<A>>) -> Vec<PrivateKey> {
        let began = Instant::now();
        let taken = slice.len();
        let mut wanted = Vec::with_capacity(taken);
        let mut waited = Duration::ZERO;
        for Queued { mut job, .. } in slice.drain(..) {
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
            jobs.iter().filter(|job| job.key.wants_preparing(self.batches)).map(|job| job.key.clone());
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

    /// Makes what batches need of these keys, once, when signatures by them have left: neither those nor a batch wait for it.
    fn prepare(&self, unprepared: &[PrivateKey]) {
        if !unprepared.is_empty() {
            let began = Instant::now();
            attempt_each(unprepared, self.library.prepare);
            self.busy_ns.fetch_add(nanos(began.elapsed()), Relaxed);
        }
    }
}

/// Lowers the priority of this thread: connections, health checks and other nodes' pings come before signatures that take long.
fn yield_to_others() {
    // Where the system refuses it, signatures are made all the same.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "the priority of a thread that signs is not lowered");
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

    struct Nobody;

    impl Responder for Nobody {
        fn is_waiting(&self) -> bool {
            true
        }

        fn respond(self, _: Result<Vec<u8>, StageError>) {}
    }

    /// Says of every slice that one of it was faulty.
    fn faulty(jobs: &[SignJob<'_>], batches: Batches) -> Slice {
        Slice { faulty: 1, ..sign_slice(jobs, batches) }
    }

    #[tokio::test]
    async fn faulty_signatures_are_counted_where_operators_look() {
        let stage = Stage::start_by(1, Batches::All, Library { sign: faulty, ..LIBRARY }).unwrap();
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
        let job = Job { key, scheme, input: [7; 32].into(), deadline, line: 0, responder: Nobody };
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
    async fn by_which_keys_batches_are_made_stands_in_the_figures() {
        for (batches, chosen) in
            [(Batches::Off, [false; 3]), (Batches::Rsa, [true, false, false]), (Batches::All, [true; 3])]
        {
            let stage: Stage<Nobody> = Stage::start(1, batches).unwrap();
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

    /// A library that is slow for a while: who could not be answered in time is refused at once, and everybody else is not.
    #[test]
    fn what_would_be_late_is_refused_when_it_comes() {
        let lane = Lane::new(Cost::Light, 2, Batches::Off, LIBRARY);
        lane.queue.lock().jobs.set_shares(&[1, 1]);
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let put = |line, within_s| {
            let deadline = Instant::now() + Duration::from_secs(within_s);
            let (key, scheme) = (key.clone(), Scheme::Ecdsa(keys::Hash::Sha256));
            lane.put(Job { key, scheme, input: [7; 32].into(), deadline, line, responder: Nobody }).is_ok()
        };
        // A minute each, by two workers.
        lane.pace.observe(Duration::from_secs(60), 1);
        assert!(put(0, 5), "nobody waits: it is tried");
        assert!((0..9).all(|_| put(0, 3_600)), "5 minutes");
        assert!(!put(0, 200) && put(0, 3_600));
        assert!(put(1, 5), "another line waits for nobody of this one");
        assert_eq!((lane.refused.load(Relaxed), lane.waiting.load(Relaxed)), (1, 12));
        // It is fast again, and says so with the first signatures.
        let mut slice = Vec::new();
        while lane.take(&mut lane.queue.lock(), &mut slice) {
            lane.sign(&mut slice);
        }
        (0..100).for_each(|_| lane.pace.observe(Duration::from_micros(20), 1));
        assert!((0..100).all(|_| put(0, 5)));
        assert_eq!(lane.refused.load(Relaxed), 1);
    }

    /// Threads that sign give way to those that talk to clients and other nodes.
    #[tokio::test]
    async fn threads_that_sign_have_a_lower_priority() {
        fn nice_of(name: &str) -> Option<i32> {
            std::fs::read_dir("/proc/self/task").unwrap().flatten().find_map(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
                let (before, fields) = stat.rsplit_once(") ")?;
                before.ends_with(&format!("({name}")).then(|| fields.split(' ').nth(16)?.parse().ok())?
            })
        }
        let stage: Stage<Nobody> = Stage::start(1, Batches::Off).unwrap();
        let lowered = async {
            while !["sign-medium-0", "sign-heavy-0"].iter().all(|name| nice_of(name) == Some(NICE)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), lowered).await.expect("their priority is lowered");
        stage.stop().await;
    }

    /// Tables of curves are for batches that were chosen.
    #[tokio::test]
    async fn only_what_is_chosen_is_made_in_batches() {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        key.prepare();
        let (scheme, deadline) =
            (Scheme::Ecdsa(keys::Hash::Sha256), Instant::now() + Duration::from_secs(60));
        for batches in [Batches::Rsa, Batches::All] {
            let lane = Lane::new(Cost::Light, 1, batches, LIBRARY);
            for _ in 0..BATCH {
                let (key, input) = (key.clone(), [7; 32].into());
                assert!(lane.put(Job { key, scheme, input, deadline, line: 0, responder: Nobody }).is_ok());
            }
            let mut slice = Vec::new();
            assert!(lane.take(&mut lane.queue.lock(), &mut slice));
            assert!(lane.sign(&mut slice).is_empty());
            let is_made = keys::batches_are_made(KeyType::P256, batches);
            assert_eq!(lane.batched.load(Relaxed), if is_made { BATCH as u64 } else { 0 }, "{batches}");
        }
    }

    #[tokio::test]
    async fn tables_are_made_once_on_a_thread_of_their_own() {
        static MADE_ON: Mutex<Vec<Option<String>>> = Mutex::new(Vec::new());
        fn prepare_tables(_: Batches) {
            MADE_ON.lock().push(thread::current().name().map(str::to_owned));
        }
        let stage: Stage<Nobody> =
            Stage::start_by(3, Batches::All, Library { prepare_tables, ..LIBRARY }).unwrap();
        stage.stop().await;
        assert_eq!(*MADE_ON.lock(), [Some("sign-tables".to_owned())]);
    }

    /// Messages that are long to hash make slices shorter; digests do not.
    #[test]
    fn a_slice_of_light_work_ends_where_its_work_does() {
        let lane = Lane::new(Cost::Light, 1, Batches::All, LIBRARY);
        let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let taken = |octets: usize| {
            for _ in 0..BATCH {
                let input = vec![7_u8; octets].into_boxed_slice();
                let (key, scheme) = (key.clone(), Scheme::Ed25519);
                assert!(lane.put(Job { key, scheme, input, deadline, line: 0, responder: Nobody }).is_ok());
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
        // 9 µs and 50 each.
        assert_eq!(taken(15_000), [3, 3, 2]);
        assert_eq!(taken(65_532), [1; BATCH]);
    }

    #[test]
    fn keys_are_prepared_when_all_have_their_answers_and_may_fail_at_it() {
        /// Of each call how many were signed; 0 for a key that was prepared.
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
            responder: Nobody,
        };
        let alone = || job(&rsa, Scheme::RsaPkcs1(keys::Hash::Sha256));
        let mut slice =
            vec![Queued { job: alone(), batched: false }, Queued { job: alone(), batched: false }];
        slice.extend(
            (0..BATCH_MIN)
                .map(|_| Queued { job: job(&other, Scheme::Ecdsa(keys::Hash::Sha256)), batched: true }),
        );
        lane.sign_batch(&mut slice);
        let mut wanted = vec![1, 1, BATCH_MIN];
        // Where the processor makes no batches nothing is prepared.
        wanted.resize(if rsa.wants_preparing(Batches::All) { 5 } else { 3 }, 0);
        assert_eq!(*CALLS.lock(), wanted);
        assert_eq!(lane.working.load(Relaxed), 0);
    }
}
