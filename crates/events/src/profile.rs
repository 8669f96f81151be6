//! The event body about profiles.

use serde::{Deserialize, Serialize};

/// A profile was created, changed or deleted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileChanged {}
