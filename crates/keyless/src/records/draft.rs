//! The record of a signature that is under way.

use std::sync::Arc;
use std::time::SystemTime;

use x509::SpkiHash;

use super::record::{Input, UnwrittenRecord};
use super::recorder::Slot;
use crate::Key;
use crate::tenant::Tenant;

/// A signature that is asked for: its record, but for the time, and the place for it.
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

    /// The signature is made, and leaves next.
    pub(crate) fn made(self, tenant: Arc<Tenant>, client: Option<SpkiHash>) {
        let Self { slot, key, operation, input } = self;
        slot.fill(UnwrittenRecord { at: SystemTime::now(), tenant, client, key, operation, input });
    }
}
