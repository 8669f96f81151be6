//! Catches panics in functions that C calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cryptoki_sys::*;

use crate::Outcome;

/// Returns the result of a function, or an error code if it panics.
pub(super) fn guarded(operation: impl FnOnce() -> Outcome) -> CK_RV {
    match catch_unwind(AssertUnwindSafe(operation)) {
        Ok(Ok(())) => CKR_OK,
        Ok(Err(value)) => value,
        Err(_) => CKR_GENERAL_ERROR,
    }
}
