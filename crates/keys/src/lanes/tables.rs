//! Tables that batches on a curve read.

use std::sync::Once;

/// Whether tables are sound; says so once where they are not.
pub(super) fn are_sound(are_sound: bool, curve: &str, said: &Once) -> bool {
    if !are_sound {
        said.call_once(|| {
            tracing::error!(curve, "the tables for batches are not what they must be: this process makes none on this curve; look at this machine");
        });
    }
    are_sound
}
