//! The handle on everything under management.

mod approvals;
mod change;
mod create;
mod directory;
mod export;
mod inventory;
mod ledger;
mod people;
mod policies;
mod read;
mod selection;
mod surroundings;
mod work;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use authority::keystore::{KeyStore, KeyStoreError};
use parking_lot::Mutex;
use store::{Batcher, Clock, Store, StoreError};
use tokio::sync::Notify;
use uuid::Uuid;

use issuers::IssuerError;
use crate::job::JobId;
use crate::managed::{BadRequest, Unreadable};
use crate::people::BadPerson;
use crate::policy::{BadPolicy, Violation};
use crate::scheduler::Figures;
use crate::state::Illegal;

pub use approvals::{Approval, ApprovalState, NOTE_OCTETS_MAX};
pub use create::Created;
pub use export::{ExportFormat, Exported, PASSWORD_OCTETS_MIN};
pub use inventory::{FOUND_LOOKED_MAX, Found, FoundState, Whose};
pub use people::PersonRecord;
pub use policies::{PolicyRecord, ViolationRecord};
pub use read::{CertificatePage, Counts, JobPage, VersionPage};
pub use selection::{BulkReport, IDS_MAX, Reassign, RevokeRequest, Selection};
pub use surroundings::{Home, IssuerSource, OwnAuthority, ProfileFacts};

pub(crate) use approvals::approval_of;
pub(crate) use create::violation_row;
pub(crate) use directory::{Judged, PolicyCache, judge};
pub(crate) use ledger::{Entry, Ledger, attempt, job_details, on};
pub(crate) use selection::{hasten, run_now, run_of};

/// How long a run may be without news before others take it over, µs. Renewed at a third of it while it is at work.
pub(crate) const LEASE_US: i64 = 120_000_000;

/// How long a run goes on trying before it is given up, µs: a long weekend.
pub(crate) const RUN_PATIENCE_US: i64 = 3 * 86_400_000_000;

/// How long an approval may take, µs. After it the run is over, and planned anew.
pub(crate) const APPROVAL_PATIENCE_US: i64 = 7 * 86_400_000_000;

/// Certificates moved in one transaction: half a second's work, some MiB.
pub(crate) const CHUNK: usize = 2_000;

/// How a [`Lifecycle`] works; the default suits one machine.
#[derive(Clone, Debug)]
pub struct LifecycleOptions {
    /// Runs that this process has under way at once, over all issuers: each holds a chain, a request and a task, some
    /// 50 KiB.
    pub runs_max: usize,
    /// How often the scheduler looks by itself; what is asked for is looked at once.
    pub tick: Duration,
    /// How long an order may take at an issuer.
    pub order_patience: Duration,
    /// How long policies are believed before they are read again; changes made here are seen at once.
    pub cache_lifetime: Duration,
    /// How long runs under way may go on after a stop before they are left to whoever looks next.
    pub stop_patience: Duration,
}

impl Default for LifecycleOptions {
    fn default() -> Self {
        Self {
            runs_max: 256,
            tick: Duration::from_secs(5),
            order_patience: Duration::from_secs(600),
            cache_lifetime: Duration::from_secs(5),
            stop_patience: Duration::from_secs(10),
        }
    }
}

/// Managed certificates and what happens to them. Cheap to clone; the clones share everything.
#[derive(Clone)]
pub struct Lifecycle {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) keystore: KeyStore,
    pub(crate) clock: Clock,
    pub(crate) issuers: Arc<dyn IssuerSource>,
    pub(crate) own: Arc<dyn OwnAuthority>,
    pub(crate) options: LifecycleOptions,
    /// This process, as the holder of leases.
    pub(crate) node: Uuid,
    pub(crate) policies: PolicyCache,
    /// Wakes the scheduler.
    pub(crate) wake: Notify,
    /// Asks for everything to be held against the policies.
    pub(crate) judge: Notify,
    /// Runs under way here, by issuer, and until when an issuer is left alone.
    pub(crate) busy: Mutex<HashMap<String, Busy>>,
    /// Runs that somebody here works on: their leases are kept, and no others'.
    pub(crate) at_work: Mutex<HashSet<i64>>,
    pub(crate) figures: Figures,
    creating: Batcher<create::Creation, Result<Created, LifecycleError>>,
    pub(crate) finishing: Batcher<crate::scheduler::Finished, ()>,
    /// The clock at the last tick, µs: tells that it was set back.
    pub(crate) last_tick_us: Mutex<i64>,
}

/// Keeps the leases of runs that were claimed, until it is dropped: a run that nobody works on any more is left to its lease,
/// whatever the database says to that at the moment.
pub(crate) struct AtWork {
    inner: Weak<Inner>,
    jobs: Vec<i64>,
}

impl AtWork {
    pub(crate) fn on(lifecycle: &Lifecycle, jobs: Vec<i64>) -> Self {
        lifecycle.inner.at_work.lock().extend(&jobs);
        Self { inner: Arc::downgrade(&lifecycle.inner), jobs }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            let mut at_work = inner.at_work.lock();
            self.jobs.iter().for_each(|job| {
                at_work.remove(job);
            });
        }
    }
}

impl std::fmt::Debug for AtWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AtWork").field(&self.jobs).finish()
    }
}

/// What an issuer has under way in this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    pub(crate) running: usize,
    pub(crate) rest_until_us: i64,
}

/// Why something was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LifecycleError {
    /// No such certificate, run, approval, policy, owner or team.
    #[error("there is no {what} {id}")]
    NotFound {
        /// The noun.
        what: &'static str,
        /// As asked.
        id: String,
    },
    /// The request makes no sense by itself.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The policy cannot be kept.
    #[error(transparent)]
    BadPolicy(#[from] BadPolicy),
    /// The owner or team cannot be kept.
    #[error(transparent)]
    BadPerson(#[from] BadPerson),
    /// The name is taken.
    #[error("there is already {what} {name:?}")]
    Taken {
        /// The noun, with its article.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Something it names does not exist.
    #[error("there is no {what} {name:?}; make it first")]
    Missing {
        /// The noun.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Still named by something.
    #[error("{what} {name:?} is still used by the certificate {by}")]
    InUse {
        /// The noun.
        what: &'static str,
        /// The name.
        name: String,
        /// One user of it.
        by: Uuid,
    },
    /// Somebody changed it since it was read.
    #[error("it was changed meanwhile: read it again (its revision is now {revision})")]
    Stale {
        /// The revision now.
        revision: i64,
    },
    /// The state does not allow it.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// A run is in the way.
    #[error("a run is under way ({job}): wait for it, or cancel it")]
    UnderWay {
        /// Which.
        job: JobId,
    },
    /// Enforced policies forbid it.
    #[error("policies forbid it: {}", list(.0))]
    Forbidden(Vec<Violation>),
    /// The one who decides is the one who asked.
    #[error("whoever asked for it ({0}) cannot approve it: a second person has to")]
    SamePerson(String),
    /// It was decided already, or is over.
    #[error("the approval is {0} already")]
    Decided(&'static str),
    /// There is nothing to give, or it may not be given.
    #[error("{0}")]
    NotExportable(&'static str),
    /// The CSR is not what was asked for.
    #[error("the CSR is refused: {0}")]
    BadCsr(String),
    /// The run does not wait for this.
    #[error("the run {job} is {state}, so it takes no such report")]
    NotWaiting {
        /// Which.
        job: JobId,
        /// How far it is.
        state: &'static str,
    },
    /// The issuer did not do it.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// Keys at rest.
    #[error(transparent)]
    Keys(#[from] KeyStoreError),
    /// The row is of another build.
    #[error("{0}")]
    Unreadable(String),
    /// The profile cannot be had.
    #[error("the profile {name:?} cannot be used: {reason}")]
    Profile {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
    /// What was found cannot be claimed.
    #[error(transparent)]
    BadClaim(#[from] crate::claim::BadClaim),
    /// Those of the database.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
    /// The work was given up: the process is going down.
    #[error("the server is stopping: try again")]
    Stopping,
}

fn list(all: &[Violation]) -> String {
    let texts: Vec<String> = all.iter().map(|one| format!("{} ({})", one.message, one.policy)).collect();
    texts.join("; ")
}

impl From<StoreError> for LifecycleError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<Unreadable> for LifecycleError {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl LifecycleError {
    pub(crate) fn not_found(what: &'static str, id: impl fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }

    /// Whether the same call may succeed later without anybody changing it.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Stopping => true,
            _ => false,
        }
    }
}

impl Lifecycle {
    /// Opens the handle over our own authority and the configured issuers. Nothing is read, nothing runs by itself:
    /// [`Lifecycle::run`] is the scheduler. Needs a runtime.
    #[must_use]
    pub fn open(
        store: Store,
        authority: authority::Authority,
        issuers: issuers::Issuers,
        keystore: KeyStore,
        clock: Clock,
        options: LifecycleOptions,
    ) -> Self {
        let own = Arc::new(Home::new(authority, store.clone()));
        Self::open_with(store, own, Arc::new(issuers), keystore, clock, options)
    }

    /// [`Lifecycle::open`] in other surroundings.
    #[must_use]
    pub fn open_with(
        store: Store,
        own: Arc<dyn OwnAuthority>,
        issuers: Arc<dyn IssuerSource>,
        keystore: KeyStore,
        clock: Clock,
        options: LifecycleOptions,
    ) -> Self {
        let inner = Arc::new_cyclic(|inner| Inner {
            creating: create::batcher(store.clone(), clock.clone()),
            finishing: crate::scheduler::finisher(inner.clone()),
            policies: PolicyCache::new(options.cache_lifetime),
            store,
            keystore,
            clock,
            issuers,
            own,
            options,
            node: Uuid::new_v4(),
            wake: Notify::new(),
            judge: Notify::new(),
            busy: Mutex::default(),
            at_work: Mutex::default(),
            figures: Figures::default(),
            last_tick_us: Mutex::new(i64::MIN),
        });
        Self { inner }
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.inner.clock.now_us()
    }

    /// What the loops and issuers of this process have done, for metrics.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.inner.figures
    }

    /// Runs under way in this process, by issuer.
    #[must_use]
    pub fn under_way(&self) -> BTreeMap<String, usize> {
        self.inner.busy.lock().iter().map(|(name, busy)| (name.clone(), busy.running)).collect()
    }
}

impl fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lifecycle").field("node", &self.inner.node).finish_non_exhaustive()
    }
}
