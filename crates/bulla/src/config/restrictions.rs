//! `[sandbox]`: restrictions that long-running processes apply to themselves.

use std::path::PathBuf;

use cli::exit::{Outcome, Problem};
use sandbox::{Capabilities, Mode};
use serde::{Deserialize, Serialize};

/// Configuration section `[sandbox]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxSettings {
    pub(crate) mode: Mode,
    pub(crate) readable_folders: Vec<PathBuf>,
    pub(crate) writable_folders: Vec<PathBuf>,
    pub(crate) keep_capabilities: Vec<String>,
}

impl SandboxSettings {
    pub(super) fn check(&self) -> Outcome<()> {
        self.capabilities()?;
        let mut folders = self.readable_folders.iter().chain(&self.writable_folders);
        match folders.find(|folder| !folder.is_absolute()) {
            None => Ok(()),
            Some(folder) => Err(Problem::usage(format_args!(
                "sandbox.readable_folders and writable_folders: {} is not an absolute path",
                folder.display()
            ))
            .hint("give absolute paths, such as /var/lib/bulla")),
        }
    }

    /// Returns the capabilities that the process keeps in addition to the capabilities of its roles.
    pub(crate) fn capabilities(&self) -> Outcome<Capabilities> {
        self.keep_capabilities.iter().try_fold(Capabilities::NONE, |all, name| {
            let one = name.parse().map_err(|error| {
                Problem::usage(format_args!("sandbox.keep_capabilities: {error}"))
                    .hint("give names such as CAP_DAC_READ_SEARCH")
            })?;
            Ok(all.and(one))
        })
    }
}
