//! The roles of each process on this host, for `bulla doctor`: one file per process in the data folder.

use std::path::PathBuf;

use cli::exit::Outcome;
use serde::{Deserialize, Serialize};

use crate::component::Description;
use crate::config::Role;
use crate::data_folder;

/// The prefix of a file name. The name of the first role and `.json` follow.
const PREFIX: &str = "roles-";

/// The roles of one process, as read from its file.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ProcessRoles {
    /// Process ID.
    pub(crate) process: u32,
    pub(crate) roles: Vec<(Role, Description)>,
}

/// The file of this process, removed on drop.
pub(crate) struct RoleFile(Option<PathBuf>);

impl RoleFile {
    /// Writes the roles of this process. If that fails, for example on a full disk, logs a warning.
    pub(crate) fn write(roles: Vec<(Role, Description)>) -> Self {
        let Some(first) = roles.first().map(|(role, _)| *role) else { return Self(None) };
        let file = ProcessRoles { process: std::process::id(), roles };
        let written = data_folder::folder().map_err(|problem| problem.message).and_then(|folder| {
            let path = folder.join(format!("{PREFIX}{}.json", first.name()));
            let text = serde_json::to_vec_pretty(&file).unwrap_or_default();
            std::fs::write(&path, text).map_err(|error| error.to_string()).map(|()| path)
        });
        match written {
            Ok(path) => Self(Some(path)),
            Err(error) => {
                tracing::warn!(
                    error,
                    "cannot write the file of roles: `bulla doctor` does not show the roles of this process"
                );
                Self(None)
            }
        }
    }
}

impl Drop for RoleFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns all processes on this host that run, or that were killed and left their file behind. Unreadable files are skipped.
pub(crate) fn all() -> Outcome<Vec<ProcessRoles>> {
    let Ok(folder) = std::fs::read_dir(cli::data::folder()?) else { return Ok(Vec::new()) };
    let is_one = |name: &str| name.starts_with(PREFIX) && name.ends_with(".json");
    let files = folder.flatten().filter(|file| file.file_name().to_str().is_some_and(is_one));
    let read = files.filter_map(|file| serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok());
    Ok(read.collect())
}
