//! No panic goes past a function that C calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cryptoki_sys::*;

use crate::Outcome;

/// The value of a function, whatever happens in it.
pub(super) fn guarded(does: impl FnOnce() -> Outcome) -> CK_RV {
    match catch_unwind(AssertUnwindSafe(does)) {
        Ok(Ok(())) => CKR_OK,
        Ok(Err(value)) => value,
        Err(_) => CKR_GENERAL_ERROR,
    }
}
