//! The scan engine: decides which target is probed when, with limited concurrency.
//!
//! One task, the scheduler, owns all queues, so no locks are needed. Targets are resolved, wait in `ready` (or in `parked`, while
//! the limit of their address is reached), and are probed in separate tasks. Observations go to one bounded channel: a slow reader
//! delays the end of probes, and no new ones start. Targets that did not respond are probed again last.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbound::resolve::ResolveError;
use outbound::retry::Policy;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::clock::{micros, now_us};
use crate::job::{Job, Pass};
use crate::observation::Observation;
use crate::options::ScanOptions;
use crate::probe::{Prober, probe_and_report};
use crate::progress::Progress;
use crate::target::{Host, Protocol, Target, TargetError};
use crate::trusted::Trusted;
use events::ProbeOutcome;

/// Observations buffered for the reader: enough to bridge a flush of the writer, few enough that a slow writer slows the scan
/// immediately.
const OBSERVATIONS_IN_CHANNEL: usize = 256;
/// Targets read ahead of the scheduler.
const TARGETS_IN_CHANNEL: usize = 1_024;
/// Buffered errors about invalid targets; parsing of targets waits when the buffer is full.
const REFUSALS_IN_CHANNEL: usize = 64;
/// Maximum concurrent DNS lookups per scan.
const RESOLVING_MAX: usize = 512;
/// Maximum resolved targets that wait for a slot. Large, so that thousands of names with one busy address do not block the others;
/// about 100 bytes each.
const WAITING_MAX: usize = 65_536;
/// Maximum unresponsive targets that are stored for the second pass. For further targets, the first result is final, and the
/// observation says so.
const SECOND_PASS_MAX: usize = 131_072;
/// Maximum targets remembered to skip duplicates; 8 bytes each. Further duplicates are probed again, which only costs time.
const REMEMBERED_MAX: usize = 4_194_304;

/// Time for which the remaining targets are read after the deadline, to report each as not scanned.
const READ_AFTER_DEADLINE: Duration = Duration::from_secs(1);

/// Minimum delay between an immediate failure and the second probe: longer than the resolver caches SERVFAIL (one second).
const RECOVERY: Duration = Duration::from_millis(1_100);
/// Random delay added to [`RECOVERY`], uniformly distributed.
const RECOVERY_JITTER: Policy =
    Policy { base: Duration::from_millis(400), cap: Duration::from_millis(400), retries: 1 };

/// Knowledge about endpoints from earlier scans.
#[derive(Debug, Default)]
pub struct KnownEndpoints {
    /// Endpoints already observed in this scan (`--resume`), by [`Target::identity`].
    pub observed: HashSet<String>,
    /// Endpoints that did not respond in the previous scan, by [`Target::identity`]: they are probed last.
    pub silent: HashSet<String>,
}

/// A running scan. Dropping this value does not stop the scan; cancel the token given to [`Scanner::start`].
pub struct Run {
    /// All observations, one per endpoint. Closed when the scan has ended.
    pub observations: mpsc::Receiver<Observation>,
    /// Errors about invalid targets. Read or drop this channel: when it is full, further targets wait.
    pub refused: mpsc::Receiver<TargetError>,
    /// Live counters of the scan.
    pub progress: Arc<Progress>,
}

/// A scanner that probes endpoints. Create it once; each call of [`Scanner::start`] is one scan.
pub struct Scanner {
    prober: Arc<Prober>,
}

impl Scanner {
    /// Creates a scanner, with the key shares, caches and limits that all its probes share.
    ///
    /// # Errors
    /// When the system has no randomness for the key shares.
    pub fn new(
        options: ScanOptions,
        resolver: outbound::resolve::Resolver,
        trust: Trusted,
    ) -> Result<Self, crate::ScanError> {
        Ok(Self { prober: Arc::new(Prober::new(options, resolver, trust)?) })
    }

    /// Returns the revocation checker, so that other checks can share its cached CRLs.
    #[must_use]
    pub fn revocation(&self) -> Option<crate::revocation::RevocationChecker> {
        self.prober.options.revocation.clone()
    }

    /// Starts to probe `targets`, which are read lazily: an endless iterator is allowed.
    ///
    /// # Cancellation
    /// When `stop` is cancelled, no new probe begins, probes in progress are dropped without a record, and the channel of
    /// observations closes.
    pub fn start(
        &self,
        targets: Box<dyn Iterator<Item = Result<Target, TargetError>> + Send>,
        known: KnownEndpoints,
        stop: CancellationToken,
    ) -> Run {
        let (out, observations) = mpsc::channel(OBSERVATIONS_IN_CHANNEL);
        let (refused_sender, refused) = mpsc::channel(REFUSALS_IN_CHANNEL);
        let (target_sender, input) = mpsc::channel(TARGETS_IN_CHANNEL);
        let progress = Arc::new(Progress::default());
        let reading = stop.clone();
        // A separate thread, because standard input blocks. The thread ends when its input ends or its reader is dropped.
        std::thread::spawn(move || read_targets(targets, &target_sender, &refused_sender, &reading));
        let observations = self.with_verdicts(observations, &stop);
        let measuring = stop.child_token();
        self.prober.adaptive_timeouts.measure(measuring.clone());
        let scheduler = Scheduler::new(self.prober.clone(), input, known, out, progress.clone(), stop);
        let guard = telemetry::tasks::guard("scan-scheduler");
        tokio::spawn(async move {
            let _guard = guard;
            scheduler.run().await;
            measuring.cancel();
        });
        Run { observations, refused, progress }
    }

    /// Inserts the stage that adds revocation verdicts to observations, if revocation checks are enabled.
    fn with_verdicts(
        &self,
        observations: mpsc::Receiver<Observation>,
        stop: &CancellationToken,
    ) -> mpsc::Receiver<Observation> {
        let (prober, checker) = (self.prober.clone(), self.prober.options.revocation.clone());
        let issuers = move |certificate: &x509::Certificate, sent: &[Arc<x509::Certificate>]| {
            prober.judge.issuer_of(certificate, sent)
        };
        crate::revocation::with_verdicts(observations, checker, issuers, stop)
    }
}

fn read_targets(
    targets: impl Iterator<Item = Result<Target, TargetError>>,
    target_sender: &mpsc::Sender<Target>,
    refused_sender: &mpsc::Sender<TargetError>,
    stop: &CancellationToken,
) {
    for target in targets {
        if stop.is_cancelled() {
            return;
        }
        match target {
            Ok(target) => {
                if target_sender.blocking_send(target).is_err() {
                    return;
                }
            }
            // The receiver may be dropped; a slow receiver delays this thread.
            Err(error) => drop(refused_sender.blocking_send(error)),
        }
    }
}

/// A target that is probed a second time, after all others have been probed once.
struct Retry {
    target: Arc<Target>,
    /// The job; `None` if the addresses are not known yet.
    job: Option<Job>,
    pause: Duration,
}

/// A limit of concurrent probes: for one address or one protocol.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Slot {
    Address(IpAddr),
    Class(Protocol),
}

struct Resolved {
    target: Arc<Target>,
    pass: Pass,
    attempts: u8,
    began_us: i64,
    result: Result<outbound::resolve::Resolution, ResolveError>,
    took_us: u32,
}

struct Scheduler {
    prober: Arc<Prober>,
    input: mpsc::Receiver<Target>,
    input_open: bool,
    known: KnownEndpoints,
    seen: HashSet<u64>,
    hasher: RandomState,
    resolving: JoinSet<Resolved>,
    resolving_targets: HashMap<Id, Arc<Target>>,
    ready: VecDeque<Job>,
    parked: HashMap<Slot, VecDeque<Job>>,
    parked_count: usize,
    busy: HashMap<Slot, usize>,
    /// Probes in progress; each returns its job if the target is to be probed a second time.
    probing: JoinSet<Option<(Job, ProbeOutcome)>>,
    under_way: HashMap<Id, (Arc<Target>, IpAddr)>,
    reading: JoinSet<()>,
    retry_queue: VecDeque<Retry>,
    out: mpsc::Sender<Observation>,
    progress: Arc<Progress>,
    stop: CancellationToken,
}

impl Scheduler {
    fn new(
        prober: Arc<Prober>,
        input: mpsc::Receiver<Target>,
        known: KnownEndpoints,
        out: mpsc::Sender<Observation>,
        progress: Arc<Progress>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            prober,
            input,
            input_open: true,
            known,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            resolving: JoinSet::new(),
            resolving_targets: HashMap::new(),
            ready: VecDeque::new(),
            parked: HashMap::new(),
            parked_count: 0,
            busy: HashMap::new(),
            probing: JoinSet::new(),
            under_way: HashMap::new(),
            reading: JoinSet::new(),
            stop,
            retry_queue: VecDeque::new(),
            out,
            progress,
        }
    }

    async fn run(mut self) {
        let stop = self.stop.clone();
        let deadline = self.prober.options.deadline.map(|limit| tokio::time::Instant::now() + limit);
        loop {
            self.start_probes();
            if self.finished() {
                break;
            }
            let has_room = self.input_open && self.can_take_input();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now)),
                    if deadline.is_some() => {
                    self.cancel_all().await;
                    break;
                }
                Some(done) = self.probing.join_next_with_id() => self.on_probed(done).await,
                Some(done) = self.reading.join_next() => drop(task_result(done)),
                Some(done) = self.resolving.join_next_with_id() => self.on_resolved(done).await,
                target = self.input.recv(), if has_room => match target {
                    Some(target) => self.on_target(target),
                    None => self.input_open = false,
                },
                // Nothing is in progress or readable, and the scan has not ended: the limit is temporarily zero.
                () = tokio::time::sleep(std::time::Duration::from_millis(20)),
                    if self.probing.is_empty() && self.resolving.is_empty() && self.reading.is_empty() && !has_room => {}
            }
        }
        self.probing.shutdown().await;
        self.resolving.shutdown().await;
        // Files are read by threads, which check the token between two files.
        self.reading.shutdown().await;
    }

    /// Reports every target that has not ended, because the deadline of the scan has passed.
    async fn cancel_all(&mut self) {
        self.probing.abort_all();
        self.resolving.abort_all();
        let mut left: Vec<Arc<Target>> = self.under_way.drain().map(|(_, (target, _))| target).collect();
        left.extend(self.resolving_targets.drain().map(|(_, target)| target));
        left.extend(self.ready.drain(..).map(|job| job.target));
        left.extend(self.parked.drain().flat_map(|(_, jobs)| jobs).map(|job| job.target));
        left.extend(self.retry_queue.drain(..).map(|retry| retry.target));
        for target in left {
            self.report_cancelled(target).await;
        }
        let until = tokio::time::Instant::now() + READ_AFTER_DEADLINE;
        while let Ok(Some(target)) = tokio::time::timeout_at(until, self.input.recv()).await {
            self.progress.queued();
            self.report_cancelled(Arc::new(target)).await;
        }
    }

    async fn report_cancelled(&self, target: Arc<Target>) {
        let detail = Some("no answer before the deadline of the scan".to_owned());
        self.progress.finished(ProbeOutcome::Cancelled);
        // The receiver is dropped only when the scan is stopped.
        let _ = self.out.send(Observation::ended(target, now_us(), ProbeOutcome::Cancelled, detail)).await;
    }

    fn finished(&self) -> bool {
        !self.input_open
            && self.resolving.is_empty()
            && self.probing.is_empty()
            && self.reading.is_empty()
            && self.ready.is_empty()
            && self.parked_count == 0
            && self.retry_queue.is_empty()
    }

    fn can_take_input(&self) -> bool {
        self.resolving.len() < RESOLVING_MAX
            && self.ready.len() + self.parked_count < WAITING_MAX
            // Targets that need no DNS lookup must not run far ahead of the probes.
            && self.ready.len() < TARGETS_IN_CHANNEL
    }

    fn on_target(&mut self, target: Target) {
        let target = Arc::new(target);
        let identity = target.identity();
        if self.known.observed.contains(&identity) {
            self.progress.skipped();
            return;
        }
        if self.seen.len() < REMEMBERED_MAX && !self.seen.insert(self.hasher.hash_one(&identity)) {
            self.progress.repeated();
            return;
        }
        self.progress.queued();
        if self.known.silent.contains(&identity) && self.retry_queue.len() < SECOND_PASS_MAX {
            self.retry_queue.push_back(Retry { target, job: None, pause: Duration::ZERO });
        } else {
            self.admit(target, Pass::First, 0, Duration::ZERO);
        }
    }

    /// Looks up the target's addresses, or uses its literal address.
    fn admit(&mut self, target: Arc<Target>, pass: Pass, attempts: u8, pause: Duration) {
        if let Host::Path(path) = &target.host {
            return self.read_files(path.clone());
        }
        if let Host::Resource(_) = &target.host {
            // Target lists never contain such a target, but callers may create one; it is reported.
            return self.report_unsupported(target);
        }
        if let Host::Address(address) = target.host {
            self.ready.push_back(Job {
                target,
                addresses: vec![address],
                by_address: false,
                pass,
                dns_us: 0,
                valid_until: None,
                attempts,
                stalled: false,
                pause,
            });
            return;
        }
        let (prober, resolving) = (self.prober.clone(), target.clone());
        let lookup = self.resolving.spawn(async move {
            sleep_unless_zero(pause).await;
            let (began_us, began) = (now_us(), Instant::now());
            let result = prober.resolve(&target, pass).await;
            Resolved { target, pass, attempts, began_us, result, took_us: micros(began) }
        });
        self.resolving_targets.insert(lookup.id(), resolving);
    }

    /// Reports a target that the engine does not support.
    fn report_unsupported(&mut self, target: Arc<Target>) {
        let (out, progress) = (self.out.clone(), self.progress.clone());
        self.reading.spawn(async move {
            let detail = Some("only the cloud source can probe this target".to_owned());
            let observation = Observation::ended(target, now_us(), ProbeOutcome::Unknown, detail);
            progress.finished(observation.outcome);
            // The receiver is dropped only when the scan is stopped.
            let _ = out.send(observation).await;
        });
    }

    /// Reads directories concurrently on the runtime's blocking threads. The runtime limits the number of these threads.
    fn read_files(&mut self, path: Arc<std::path::Path>) {
        let (prober, out, progress) = (self.prober.clone(), self.out.clone(), self.progress.clone());
        let (stop, guard) = (self.stop.clone(), telemetry::tasks::guard("scan-files"));
        self.reading.spawn_blocking(move || {
            let _guard = guard;
            let passwords = prober.options.passwords.clone();
            crate::folder::read(&path, &passwords, &prober.judge, &out, &progress, &stop);
        });
    }

    async fn on_resolved(&mut self, done: Result<(Id, Resolved), JoinError>) {
        let id = match &done {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        self.resolving_targets.remove(&id);
        let Some((_, mut done)) = task_result(done) else { return };
        let result = std::mem::replace(&mut done.result, Err(ResolveError::BadName));
        let resolution = match result {
            Ok(resolution) => resolution,
            Err(error) => return self.on_unresolved(done, error).await,
        };
        let job = |addresses: Vec<IpAddr>, by_address| Job {
            target: done.target.clone(),
            addresses,
            by_address,
            pass: done.pass,
            dns_us: done.took_us,
            valid_until: Some(resolution.valid_until),
            attempts: done.attempts,
            stalled: false,
            pause: Duration::ZERO,
        };
        if !self.prober.options.all_addresses {
            self.ready.push_back(job(resolution.addresses.to_vec(), false));
            return;
        }
        for (index, &address) in resolution.addresses.iter().enumerate() {
            if index > 0 {
                self.progress.queued();
            }
            let job = job(vec![address], true);
            if self.known.observed.contains(&job.target.identity_at(address)) {
                self.progress.count_skipped_queued();
            } else {
                self.ready.push_back(job);
            }
        }
    }

    async fn on_unresolved(&mut self, done: Resolved, error: ResolveError) {
        let (outcome, detail) = crate::ending::lookup_outcome(&error);
        let retry = outcome.is_transient() && done.pass == Pass::First;
        if retry && self.queue_for_second_pass(done.target.clone(), None, outcome) {
            return;
        }
        let mut observation = Observation::ended(done.target, done.began_us, outcome, detail);
        observation.timing.dns_us = Some(done.took_us);
        observation.timing.total_us = done.took_us;
        observation.attempts = done.attempts.saturating_add(1);
        self.progress.finished(outcome);
        // The receiver is dropped only when the scan is stopped.
        let _ = self.out.send(observation).await;
    }

    fn queue_for_second_pass(
        &mut self,
        target: Arc<Target>,
        job: Option<Job>,
        outcome: ProbeOutcome,
    ) -> bool {
        let has_room = self.prober.options.second_pass && self.retry_queue.len() < SECOND_PASS_MAX;
        if has_room {
            let pause = self.pause_after(outcome, &target);
            self.retry_queue.push_back(Retry { target, job, pause });
            self.progress.set_waiting_for_second_pass(self.retry_queue.len());
        }
        has_room
    }

    /// Returns the delay before an endpoint's second probe. After a timeout no delay is needed; after an immediate failure (a
    /// reset, SERVFAIL) the endpoint gets a moment to recover, with jitter.
    fn pause_after(&self, outcome: ProbeOutcome, target: &Target) -> Duration {
        if outcome.silent() {
            return Duration::ZERO;
        }
        let random = self.hasher.hash_one(target.identity()) as f64 / u64::MAX as f64;
        let jitter = RECOVERY_JITTER.waits(|| random).next().unwrap_or_default();
        RECOVERY + jitter
    }

    /// Starts probes within the limit: ready targets first, unresponsive targets last.
    fn start_probes(&mut self) {
        while self.probing.len() < self.prober.budget.limit() {
            if let Some(job) = self.ready.pop_front() {
                self.start_or_park(job);
            } else if self.is_first_pass_done() {
                let Some(Retry { target, job, pause }) = self.retry_queue.pop_front() else { return };
                self.progress.set_waiting_for_second_pass(self.retry_queue.len());
                match job {
                    Some(job) => self.start_or_park(Job { pause, ..job }),
                    None => self.admit(target, Pass::Second, 1, pause),
                }
            } else {
                return;
            }
        }
    }

    /// Returns whether all targets have had their first probe.
    fn is_first_pass_done(&self) -> bool {
        self.ready.is_empty()
            && self.parked_count == 0
            && self.resolving.len() < RESOLVING_MAX
            && (!self.input_open || self.resolving.is_empty())
    }

    /// Starts the probe, or parks the job at its first slot that is full.
    fn start_or_park(&mut self, job: Job) {
        let full = self
            .slots(&job.target, job.address())
            .find(|slot| self.busy.get(slot).is_some_and(|busy| *busy >= self.limit_of(*slot)));
        if let Some(slot) = full {
            self.parked.entry(slot).or_default().push_back(job);
            self.parked_count += 1;
            return;
        }
        for slot in self.slots(&job.target, job.address()) {
            *self.busy.entry(slot).or_default() += 1;
        }
        self.progress.set_in_flight(self.probing.len() + 1);
        let (prober, out) = (self.prober.clone(), self.out.clone());
        let progress = self.progress.clone();
        let second_pass = self.prober.options.second_pass && self.retry_queue.len() < SECOND_PASS_MAX;
        let guard = telemetry::tasks::guard("scan-look");
        let under_way = (job.target.clone(), job.address());
        let probe = self.probing.spawn(async move {
            let _guard = guard;
            sleep_unless_zero(job.pause).await;
            probe_and_report(&prober, job, second_pass, &out, &progress).await
        });
        self.under_way.insert(probe.id(), under_way);
    }

    /// Returns the slots that a probe takes in addition to the total limit. The slot of the protocol is first.
    fn slots(&self, target: &Target, address: IpAddr) -> impl Iterator<Item = Slot> + use<> {
        let class = Slot::Class(target.protocol);
        let limited = self.prober.options.class_limits.contains_key(&target.protocol);
        limited.then_some(class).into_iter().chain([Slot::Address(address)])
    }

    fn limit_of(&self, slot: Slot) -> usize {
        match slot {
            Slot::Address(_) => self.prober.options.per_address,
            Slot::Class(class) => self.prober.options.class_limits.get(&class).copied().unwrap_or(usize::MAX),
        }
    }

    async fn on_probed(&mut self, done: Result<(Id, Option<(Job, ProbeOutcome)>), JoinError>) {
        self.progress.set_in_flight(self.probing.len());
        let id = match &done {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Some((target, address)) = self.under_way.remove(&id) else { return };
        for slot in self.slots(&target, address) {
            self.release(slot);
        }
        let (mut job, outcome) = match done {
            Ok((_, Some(retry))) => retry,
            Ok((_, None)) => return,
            Err(error) => return self.report_panic(target, address, &error).await,
        };
        job.pass = Pass::Second;
        job.stalled = outcome == ProbeOutcome::Stall;
        if !self.queue_for_second_pass(target, None, outcome) {
            // The second-pass queue became full during this probe: probe again immediately instead.
            self.ready.push_back(job);
        } else if let Some(retry) = self.retry_queue.back_mut() {
            retry.job = Some(job);
        }
    }

    /// Reports a panic in a probe, which is a bug, as the outcome of that probe only.
    async fn report_panic(&mut self, target: Arc<Target>, address: IpAddr, error: &JoinError) {
        tracing::error!(%error, endpoint = %target, "a probe ended abnormally");
        let detail = Some("the probe ended abnormally; please report it".to_owned());
        let mut observation = Observation::ended(target, now_us(), ProbeOutcome::Unknown, detail);
        observation.address = Some(address);
        self.progress.finished(ProbeOutcome::Unknown);
        let _ = self.out.send(observation).await;
    }

    /// Frees a slot and makes the next job that waits for it ready.
    fn release(&mut self, slot: Slot) {
        if let Some(busy) = self.busy.get_mut(&slot) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(&slot);
            }
        }
        if let Some(waiting) = self.parked.get_mut(&slot) {
            if let Some(job) = waiting.pop_front() {
                self.parked_count -= 1;
                self.ready.push_front(job);
            }
            if waiting.is_empty() {
                self.parked.remove(&slot);
            }
        }
    }
}

/// Returns the result of a task; `None` after a panic, which is a bug and needs no clean-up.
fn task_result<T>(done: Result<T, JoinError>) -> Option<T> {
    done.inspect_err(|error| tracing::error!(%error, "a task ended abnormally")).ok()
}

async fn sleep_unless_zero(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}
