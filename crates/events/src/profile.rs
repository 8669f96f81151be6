//! The body about profiles.

use serde::{Deserialize, Serialize};

/// A profile was put or removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileChanged {}
