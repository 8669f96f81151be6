//! Rules on requests: which one meets which (`matcher`, `compile`), what they do (`apply`), credentials that are put in
//! (`inject`), and what is left behind of a request (`sight`): the access log (`access`) and recordings (`har`; what is left out of them: `needles`, `fields`,
//! `body`), each written by a task of its own (`spool`).

mod access;
mod apply;
mod body;
mod compile;
mod fields;
mod har;
mod inject;
mod matcher;
mod metrics;
mod needles;
mod rewrite;
mod rule;
mod sight;
mod spool;

pub use access::AccessLog;
pub use compile::{RULES_MAX, RequestRules};
pub use har::RecordOptions;
pub use inject::{Fetching, NoSecret, Secrets};
pub use metrics::RequestMetrics;
pub use rule::{BadRequestRule, Form, InjectText, RewriteText, RuleText};

pub(super) use apply::{Judged, Place, redact, was_taken};
pub(crate) use inject::Injected;
pub(super) use sight::counted;
pub(crate) use sight::{RequestBody, Sight};

use std::fmt;
use std::io;
use std::sync::Arc;

use hyper::{Request, StatusCode};
use parking_lot::RwLock;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Rules;
use crate::doors::Doors;
use crate::http::client::Client;
use crate::http::target::Target;
use crate::mint::LeafName;
use access::{AccessFile, LINES_MAX, Line};
use har::HarFolder;
use sight::Recorded;
use spool::Spool;

/// Recordings under way and such as wait to be written: each has two bodies of the configured limit at most in memory.
const RECORDINGS_MAX: usize = 256;

/// What becomes of requests, and what is left behind of them.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What becomes of them.
    pub rules: RequestRules,
    /// Where credentials come from that are no file's.
    pub secrets: Option<Arc<dyn Secrets>>,
    /// Where a line for each goes.
    pub access_log: Option<AccessLog>,
    /// Whether its lines have queries.
    pub access_log_query: bool,
    /// How what is recorded is kept; nothing is recorded without.
    pub record: Option<RecordOptions>,
}

/// All that decides: exchanged as one, so that a request meets the rules of one time.
#[derive(Debug)]
pub(super) struct RuleSet {
    pub(super) names: Rules,
    pub(super) requests: RequestRules,
    pub(super) secrets: Option<Arc<dyn Secrets>>,
}

/// The rules that count now.
#[derive(Clone, Debug)]
pub(super) struct Live(Arc<RwLock<Arc<RuleSet>>>);

impl Live {
    pub(super) fn new(names: Rules, options: &Options) -> Self {
        let (requests, secrets) = (options.rules.clone(), options.secrets.clone());
        Self(Arc::new(RwLock::new(Arc::new(RuleSet { names, requests, secrets }))))
    }

    pub(super) fn now(&self) -> Arc<RuleSet> {
        Arc::clone(&self.0.read())
    }

    pub(super) fn change(&self, names: Rules, requests: RequestRules, secrets: Option<Arc<dyn Secrets>>) {
        let new = Arc::new(RuleSet { names, requests, secrets });
        let old = std::mem::replace(&mut *self.0.write(), new);
        // Taken apart outside of the lock.
        drop(old);
    }
}

/// What is left behind of requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Requests(Arc<Inner>);

struct Inner {
    log: Option<Spool<Line>>,
    with_query: bool,
    recorder: Option<Recorder>,
    metrics: RequestMetrics,
}

struct Recorder {
    spool: Spool<Recorded>,
    places: Arc<Semaphore>,
    body_octets_max: usize,
}

/// Has files opened anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reopen {
    log: Arc<Notify>,
    recorder: Arc<Notify>,
}

impl Reopen {
    pub(crate) fn all(&self) {
        self.log.notify_one();
        self.recorder.notify_one();
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
    /// Begins to write; that ends with the last clone.
    pub(crate) fn start(
        options: &Options,
        metrics: &RequestMetrics,
        doors: &Doors,
        reopen: &Reopen,
    ) -> io::Result<Self> {
        let mut log = None;
        if let Some(place) = &options.access_log {
            let file = AccessFile::open(place.clone())?;
            let (spool, work) =
                Spool::new(file, LINES_MAX, metrics.lines_dropped.clone(), Arc::clone(&reopen.log));
            doors.spawn(work);
            log = Some(spool);
        }
        let recorder = options.record.as_ref().map(|record| {
            let folder = HarFolder::new(record.clone());
            let dropped = metrics.recordings_dropped.clone();
            let (spool, work) = Spool::new(folder, RECORDINGS_MAX, dropped, Arc::clone(&reopen.recorder));
            doors.spawn(work);
            Recorder {
                spool,
                places: Arc::new(Semaphore::new(RECORDINGS_MAX)),
                body_octets_max: record.body_octets_max,
            }
        });
        let with_query = options.access_log_query;
        Ok(Self(Arc::new(Inner { log, with_query, recorder, metrics: metrics.clone() })))
    }

    /// A request, if anybody wants to see it: `rules` may be such as record.
    pub(crate) fn sight<B>(
        &self,
        request: &Request<B>,
        client: &Client,
        rules: &RequestRules,
    ) -> Option<Box<Sight>> {
        let may_record = rules.record() && self.0.recorder.is_some();
        (may_record || self.is_told()).then(|| Box::new(Sight::of(self, request, client)))
    }

    /// A request, if it is told.
    pub(crate) fn told<B>(&self, request: &Request<B>, client: &Client) -> Option<Box<Sight>> {
        self.is_told().then(|| Box::new(Sight::of(self, request, client)))
    }

    /// A tunnel to `target`, as `server` where that is another name.
    pub(super) fn tunnel(&self, client: &Client, target: &Target, name: &LeafName) -> Option<Box<Sight>> {
        let new = || {
            let mut sight = Sight::new(self, client, "CONNECT".to_owned(), target.to_string());
            sight.server((*name != target.name).then(|| name.to_string()));
            Box::new(sight)
        };
        self.is_told().then(new)
    }

    /// A connection that was refused.
    pub(super) fn refused(&self, client: &Client, target: &Target) {
        if let Some(mut sight) = self.tunnel(client, target, &target.name) {
            sight.answered(StatusCode::FORBIDDEN, &hyper::HeaderMap::new());
        }
    }

    /// A CONNECT for which there is no leaf, and why.
    pub(super) fn not_permitted(
        &self,
        client: &Client,
        target: &Target,
        name: &LeafName,
        (status, reason): (StatusCode, &'static str),
    ) {
        if let Some(mut sight) = self.tunnel(client, target, name) {
            sight.refused_for(reason);
            sight.answered(status, &hyper::HeaderMap::new());
        }
    }

    pub(super) fn metrics(&self) -> &RequestMetrics {
        &self.0.metrics
    }

    fn is_told(&self) -> bool {
        self.0.log.is_some() || tracing::enabled!(target: "access", tracing::Level::INFO)
    }

    fn tell(&self, line: &Line) {
        line.tell();
        if let Some(log) = &self.0.log {
            log.put(line.clone());
        }
    }

    fn place_to_record(&self) -> Option<(OwnedSemaphorePermit, usize)> {
        let recorder = self.0.recorder.as_ref()?;
        match Arc::clone(&recorder.places).try_acquire_owned() {
            Ok(place) => Some((place, recorder.body_octets_max)),
            Err(_) => {
                self.0.metrics.recordings_dropped.inc();
                None
            }
        }
    }

    fn recorded(&self, recorded: Recorded) {
        if let Some(recorder) = &self.0.recorder {
            self.0.metrics.recorded.inc();
            recorder.spool.put(recorded);
        }
    }
}
