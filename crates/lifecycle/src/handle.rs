//! Handle for the operations on managed certificates.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use authority::keystore::KeyStore;
use authority::teams::TeamDirectory;
use parking_lot::Mutex;
use shared::Shared;
use store::{Batcher, Clock, Store};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::at_work::ActiveRuns;
use crate::creation::{CreateError, Created, Creation};
use crate::figures::Figures;
use crate::finished::FinishedAttempt;
use crate::judgement::PolicyCache;
use crate::surroundings::{InternalAuthority, IssuerSource};

/// Options of a [`Lifecycle`]. The defaults suit one machine.
#[derive(Clone, Debug)]
pub struct LifecycleOptions {
    /// Maximum concurrent runs in this process, over all issuers. Each run uses about 50 KiB of memory.
    pub runs_max: usize,
    /// Interval between scheduler ticks. A request for work starts a tick immediately.
    pub tick: Duration,
    /// Timeout of an order at an issuer.
    pub order_timeout: Duration,
    /// Time for which cached policies are valid. Changes that this process makes take effect immediately.
    pub cache_lifetime: Duration,
    /// Time for which runs may continue after a shutdown request. Another process takes over the remaining runs.
    pub stop_grace: Duration,
}

impl Default for LifecycleOptions {
    fn default() -> Self {
        Self {
            runs_max: 256,
            tick: Duration::from_secs(5),
            order_timeout: Duration::from_secs(600),
            cache_lifetime: Duration::from_secs(5),
            stop_grace: Duration::from_secs(10),
        }
    }
}

/// Managed certificates and the operations on them. Cheap to clone; clones share all state.
#[derive(Clone)]
pub struct Lifecycle {
    pub(crate) inner: Shared<ProcessState>,
}

pub(crate) struct ProcessState {
    pub(crate) store: Store,
    pub(crate) keystore: KeyStore,
    pub(crate) clock: Clock,
    pub(crate) issuers: Arc<dyn IssuerSource>,
    pub(crate) internal_ca: Arc<dyn InternalAuthority>,
    /// Directory of the objects that each team owns.
    pub(crate) teams: TeamDirectory,
    pub(crate) options: LifecycleOptions,
    /// Id of this process as a lease holder.
    pub(crate) node: Uuid,
    pub(crate) policies: PolicyCache,
    /// Triggers a scheduler tick.
    pub(crate) wake: Notify,
    /// Triggers the evaluation of all certificates against the policies.
    pub(crate) judge: Notify,
    /// For each issuer: the number of runs in this process, and the time until which no new run starts.
    pub(crate) busy: Mutex<HashMap<String, Busy>>,
    /// Runs that this process is working on. This process renews only the leases of these runs.
    pub(crate) at_work: ActiveRuns,
    pub(crate) figures: Figures,
    pub(crate) creating: Batcher<Creation, Result<Created, CreateError>>,
    pub(crate) finishing: Batcher<FinishedAttempt, ()>,
    /// Clock at the last tick, in µs since 1970. Used to detect a clock that was set back.
    pub(crate) last_tick_us: Mutex<i64>,
    /// Row id of the last open approval that the previous tick checked. 0: start from the beginning.
    pub(crate) approvals_cursor: Mutex<i64>,
    /// Position of the check of served versions. First value: row id of the last checked certificate; 0 starts from the beginning.
    /// Second value: time in µs since 1970, from which scan results are still to be read.
    pub(crate) served_cursor: Mutex<(i64, i64)>,
}

/// Number of runs of one issuer in this process, and the time until which no new run starts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    pub(crate) running: usize,
    pub(crate) paused_until_us: i64,
}

impl Lifecycle {
    /// Returns the database that stores the managed certificates.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.inner.clock.now_us()
    }

    /// Returns the metrics of this process' loops and issuers.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.inner.figures
    }

    /// Returns the number of runs in progress in this process, by issuer.
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
