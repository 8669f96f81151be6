//! The handle on everything under management.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use authority::keystore::KeyStore;
use authority::teams::TeamDirectory;
use parking_lot::Mutex;
use store::{Batcher, Clock, Store};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::at_work::RunsAtWork;
use crate::creation::{CreateError, Created, Creation};
use crate::figures::Figures;
use crate::finished::Finished;
use crate::judgement::PolicyCache;
use crate::surroundings::{IssuerSource, OwnAuthority};

/// How a [`Lifecycle`] works; the default suits one machine.
#[derive(Clone, Debug)]
pub struct LifecycleOptions {
    /// Runs that this process has under way at once, over all issuers: each holds a chain, a request and a task, some
    /// 50 KiB.
    pub runs_max: usize,
    /// Interval of the scheduler's ticks. Requested work starts a tick at once.
    pub tick: Duration,
    /// How long an order may take at an issuer.
    pub order_patience: Duration,
    /// How long policies are believed before they are read again; changes made here are seen at once.
    pub cache_lifetime: Duration,
    /// How long runs under way may go on after a stop before they are left to anyone who looks next.
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
    pub(crate) inner: Arc<ProcessState>,
}

pub(crate) struct ProcessState {
    pub(crate) store: Store,
    pub(crate) keystore: KeyStore,
    pub(crate) clock: Clock,
    pub(crate) issuers: Arc<dyn IssuerSource>,
    pub(crate) own: Arc<dyn OwnAuthority>,
    /// The objects of each team.
    pub(crate) teams: TeamDirectory,
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
    pub(crate) at_work: RunsAtWork,
    pub(crate) figures: Figures,
    pub(crate) creating: Batcher<Creation, Result<Created, CreateError>>,
    pub(crate) finishing: Batcher<Finished, ()>,
    /// The clock at the last tick, µs: tells that it was set back.
    pub(crate) last_tick_us: Mutex<i64>,
    /// The row of the open approval that the last tick looked at last; 0 to begin again.
    pub(crate) approvals_looked_at: Mutex<i64>,
    /// The row of the certificate whose served version was looked at last (0 to begin again), and from when on changes that
    /// scans saw are still to be read, µs.
    pub(crate) served_looked_at: Mutex<(i64, i64)>,
}

/// What an issuer has under way in this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    pub(crate) running: usize,
    pub(crate) rest_until_us: i64,
}

impl Lifecycle {
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
