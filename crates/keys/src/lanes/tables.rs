//! Tables for batches on a curve.

use std::sync::Once;

/// Logs an error, once, if `are_sound` is false. Returns `are_sound`.
pub(super) fn are_sound(are_sound: bool, curve: &str, logged: &Once) -> bool {
    if !are_sound {
        logged.call_once(|| {
            tracing::error!(
                curve,
                "the tables for signing in batches are corrupt: this process does not sign in batches \
             on this curve; check the hardware of this machine"
            );
        });
    }
    are_sound
}
