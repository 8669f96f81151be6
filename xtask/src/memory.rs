//! A folder in memory for the temporary files of tests. Tests create hundreds of databases: on a disk, half of the time is spent on
//! files that are not read again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::shell::{command, output_of};

/// Linux's file system in memory, open to all users.
const MEMORY: &str = "/dev/shm";
/// Minimum available memory in KiB, in this file system and in the machine. Measured use by tests is at most half of it.
const AVAILABLE_KIB_MIN: u64 = 8 * 1024 * 1024;

/// A folder in memory, deleted when it is dropped.
pub(crate) struct TemporaryFolder {
    pub(crate) path: PathBuf,
}

impl TemporaryFolder {
    /// Creates a folder in memory. Returns `None` if `TMPDIR` is set, or if there is no such file system or too little memory.
    pub(crate) fn in_memory() -> Option<Self> {
        if std::env::var_os("TMPDIR").is_some()
            || available_in_machine()?.min(available_in_folder()?) < AVAILABLE_KIB_MIN
        {
            return None;
        }
        // A short path: the path of a socket has at most 107 bytes.
        let path = Path::new(MEMORY).join(format!("bulla-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let folder = Self { path };
        // Like /tmp: tests start programs as other users.
        fs::set_permissions(&folder.path, fs::Permissions::from_mode(0o1777)).ok()?;
        Some(folder)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn available_in_folder() -> Option<u64> {
    let text = output_of(command("df").args(["--output=fstype,avail", "-k", MEMORY]))?;
    let mut words = text.lines().nth(1)?.split_whitespace();
    (words.next()? == "tmpfs").then_some(())?;
    words.next()?.parse().ok()
}

fn available_in_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
