//! `[programs.NAME]`

use std::collections::BTreeMap;

use issuers::ProgramConfig;

/// Programs by their names.
pub(crate) type ProgramConfigs = BTreeMap<String, ProgramConfig>;
