//! `[programs.NAME]`: programs that issuers, DNS-01 hooks and the master key may run.

use std::collections::BTreeMap;

use issuers::ProgramConfig;

/// Programs by the `NAME` of their section `[programs.NAME]`.
pub(crate) type ProgramConfigs = BTreeMap<String, ProgramConfig>;
