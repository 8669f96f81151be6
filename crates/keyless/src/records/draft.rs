//! The record of a signature in progress.

use std::sync::Arc;
use std::time::SystemTime;

use x509::SpkiHash;

use super::record::{Input, UnwrittenRecord};
use super::recorder::Slot;
use crate::Key;
use crate::tenant::Tenant;

/// Record of a requested signature, still without the time of the signature. Reserves a slot in the queue of records.
pub(crate) struct Draft {
    slot: Slot,
    key: Arc<Key>,
    operation: &'static str,
    input: Input,
}

impl Draft {
    pub(crate) fn new(slot: Slot, key: Arc<Key>, operation: &'static str, input: &[u8]) -> Self {
        Self { slot, key, operation, input: Input::of(input) }
    }

    /// Completes the record. Call it when the signature exists and is about to be sent.
    pub(crate) fn complete(self, tenant: Arc<Tenant>, client: Option<SpkiHash>) {
        let Self { slot, key, operation, input } = self;
        slot.fill(UnwrittenRecord { at: SystemTime::now(), tenant, client, key, operation, input });
    }
}
