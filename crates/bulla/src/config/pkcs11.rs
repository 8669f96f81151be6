//! `[pkcs11]`: the security module.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Configuration section `[pkcs11]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pkcs11Settings {
    pub(crate) module: PathBuf,
    pub(crate) token_label: String,
    pub(crate) pin_file: PathBuf,
}
