//! Constructors of the handle `Lifecycle`.

use std::sync::Arc;

use authority::Authority;
use authority::keystore::KeyStore;
use authority::teams::TeamDirectory;
use issuers::Issuers;
use parking_lot::Mutex;
use store::{Clock, Store};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::at_work::ActiveRuns;
use crate::figures::Figures;
use crate::handle::{Lifecycle, LifecycleOptions, ProcessState};
use crate::judgement::PolicyCache;
use crate::requests::batcher;
use crate::scheduler::new_finish_batcher;
use crate::surroundings::{InternalAuthority, IssuerSource, LocalAuthority};

impl Lifecycle {
    /// Creates the handle for the internal CA and the configured issuers. Reads nothing and starts no task: [`Lifecycle::run`] is
    /// the scheduler. Must be called in an async runtime.
    #[must_use]
    pub fn open(
        store: Store,
        authority: Authority,
        issuers: Issuers,
        keystore: KeyStore,
        clock: Clock,
        options: LifecycleOptions,
    ) -> Self {
        let internal_ca = Arc::new(LocalAuthority::new(authority, store.clone()));
        Self::open_with(store, internal_ca, Arc::new(issuers), keystore, clock, options)
    }

    /// Like [`Lifecycle::open`], with other implementations of the internal CA and of the issuers.
    #[must_use]
    pub fn open_with(
        store: Store,
        internal_ca: Arc<dyn InternalAuthority>,
        issuers: Arc<dyn IssuerSource>,
        keystore: KeyStore,
        clock: Clock,
        options: LifecycleOptions,
    ) -> Self {
        let inner = Arc::new_cyclic(|inner| ProcessState {
            creating: batcher(store.clone(), clock.clone()),
            finishing: new_finish_batcher(inner.clone()),
            policies: PolicyCache::new(options.cache_lifetime),
            teams: internal_ca.teams().unwrap_or_else(|| TeamDirectory::new(store.clone())),
            store,
            keystore,
            clock,
            issuers,
            internal_ca,
            options,
            node: Uuid::new_v4(),
            wake: Notify::new(),
            judge: Notify::new(),
            busy: Mutex::default(),
            at_work: ActiveRuns::default(),
            figures: Figures::default(),
            last_tick_us: Mutex::new(i64::MIN),
            approvals_cursor: Mutex::new(0),
            served_cursor: Mutex::new((0, 0)),
        });
        Self { inner: inner.into() }
    }
}
