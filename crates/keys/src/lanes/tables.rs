//! Tables for batches on a curve.

use std::sync::Once;

/// Returns whether the tables are correct. Logs an error once if they are not.
pub(super) fn are_sound(are_sound: bool, curve: &str, said: &Once) -> bool {
    if !are_sound {
        said.call_once(|| {
            tracing::error!(curve, "the tables for batches are not what they must be: this process makes none on this curve; look at this machine");
        });
    }
    are_sound
}
