//! The policy file. Only root or the agent's user may write it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::rules::{Policy, Rules};
use crate::accounts;

/// Default path of the policy.
pub const POLICY_FILE: &str = "/etc/bulla/agent.toml";
/// Maximum size of a policy file in bytes, enough for a few thousand rules.
const FILE_MAX: u64 = 1_024 * 1_024;
/// Permission bits that let group and others write.
const OTHERS_WRITE: u32 = 0o022;
/// The sticky bit of a directory: only owners may rename or delete files in it.
const STICKY: u32 = 0o1000;

/// Reason why the agent's policy cannot be used. In that case the agent allows no deployment.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The operating system returned an error.
    #[error("the policy of this host, {path}, cannot be read: {reason}")]
    System {
        /// Path of the policy file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// Another user can write the file.
    #[error(
        "the policy of this host, {path}, is rejected: {object} is writable by other users: chmod go-w {object}"
    )]
    Writable {
        /// Path of the policy file.
        path: PathBuf,
        /// The writable file, or a directory above it.
        object: PathBuf,
    },
    /// Another user owns the file.
    #[error(
        "the policy of this host, {path}, is rejected: {object} belongs to user {owner}: chown root {object}"
    )]
    Owner {
        /// Path of the policy file.
        path: PathBuf,
        /// The file with the wrong owner, or a directory above it.
        object: PathBuf,
        /// Uid of the user that owns the file or directory.
        owner: u32,
    },
    /// The path is a directory or a device, or the file is far too large.
    #[error("the policy of this host, {0}, is not a regular file of at most {FILE_MAX} bytes")]
    NotAFile(PathBuf),
    /// The file does not parse as a policy.
    #[error("the policy of this host, {path}, is invalid: {reason}")]
    Syntax {
        /// Path of the policy file.
        path: PathBuf,
        /// Position and reason of the error.
        reason: String,
    },
}

/// Path of this host's policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PolicyFile(PathBuf);

impl PolicyFile {
    /// Stores the path. Reads nothing yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Returns the path of the policy file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the current policy. Without a file, returns a policy that allows nothing. `state` is the agent's state directory, to
    /// which no job may write.
    ///
    /// # Errors
    /// [`PolicyError`]
    pub fn load(&self, state: &Path) -> Result<Policy, PolicyError> {
        let mut own = vec![state.canonicalize().unwrap_or_else(|_| state.to_owned()), self.0.clone()];
        let real = match self.0.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Policy::new(self.0.clone(), None, own));
            }
            Err(error) => return Err(self.system(&error)),
        };
        let text = self.read(&real)?;
        let rules =
            Rules::parse(&text).map_err(|reason| PolicyError::Syntax { path: self.0.clone(), reason })?;
        own.push(real);
        Ok(Policy::new(self.0.clone(), Some(rules), own))
    }

    fn read(&self, real: &Path) -> Result<String, PolicyError> {
        for folder in real.ancestors().skip(1) {
            let found = folder.metadata().map_err(|error| self.system(&error))?;
            // In a directory with the sticky bit, other writers cannot rename the file.
            let sticky = found.mode() & STICKY != 0;
            self.check(folder, &found, if sticky { 0 } else { OTHERS_WRITE })?;
        }
        let nofollow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let opened = OpenOptions::new().read(true).custom_flags(nofollow.bits() as i32).open(real);
        let file: File = opened.map_err(|error| self.system(&error))?;
        let found = file.metadata().map_err(|error| self.system(&error))?;
        if !found.is_file() || found.len() > FILE_MAX {
            return Err(PolicyError::NotAFile(self.0.clone()));
        }
        self.check(real, &found, OTHERS_WRITE)?;
        let mut text = String::new();
        file.take(FILE_MAX).read_to_string(&mut text).map_err(|error| self.system(&error))?;
        Ok(text)
    }

    fn check(&self, object: &Path, found: &Metadata, closed: u32) -> Result<(), PolicyError> {
        let (path, object) = (self.0.clone(), object.to_owned());
        if ![0, accounts::own().0].contains(&found.uid()) {
            return Err(PolicyError::Owner { path, object, owner: found.uid() });
        }
        if found.mode() & closed != 0 {
            return Err(PolicyError::Writable { path, object });
        }
        Ok(())
    }

    fn system(&self, error: &std::io::Error) -> PolicyError {
        PolicyError::System { path: self.0.clone(), reason: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn policy_writable_by_others_is_rejected_with_the_chmod_command() {
        let folder = tempfile::tempdir().unwrap();
        let (below, state) = (folder.path().join("bulla"), folder.path().join("state"));
        std::fs::create_dir(&below).unwrap();
        set_mode(&below, 0o755);
        let path = below.join("agent.toml");
        let load = || PolicyFile::new(&path).load(&state);
        load().expect("without a file nothing is allowed, and nothing is wrong");
        std::fs::write(&path, "").unwrap();
        for mode in [0o600, 0o644, 0o444] {
            set_mode(&path, mode);
            load().unwrap();
        }
        for mode in [0o666, 0o664, 0o622, 0o602] {
            set_mode(&path, mode);
            let error = load().unwrap_err().to_string();
            assert!(
                error.contains(&format!("chmod go-w {}", path.canonicalize().unwrap().display())),
                "{error}"
            );
        }
        set_mode(&path, 0o644);
        set_mode(&below, 0o775);
        assert!(matches!(load(), Err(PolicyError::Writable { .. })), "the folder counts as well");
        set_mode(&below, 0o755);
        if accounts::own().0 == 0 {
            std::os::unix::fs::chown(&path, Some(1_234), None).unwrap();
            let error = load().unwrap_err().to_string();
            assert!(error.contains("belongs to user 1234: chown root"), "{error}");
        }
    }

    #[test]
    fn policy_symlink_is_judged_by_its_target_file() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.toml"), folder.path().join("agent.toml"));
        std::fs::write(&real, "").unwrap();
        set_mode(&real, 0o666);
        symlink(&real, &link).unwrap();
        assert!(matches!(PolicyFile::new(&link).load(folder.path()), Err(PolicyError::Writable { .. })));
        set_mode(&real, 0o644);
        PolicyFile::new(&link).load(folder.path()).unwrap();
        assert!(matches!(PolicyFile::new(folder.path()).load(&real), Err(PolicyError::NotAFile(_))));
    }
}
