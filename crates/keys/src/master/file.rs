//! Files of master keys: written atomically, and readable by their owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use zeroize::Zeroizing;

use super::error::KeyringError;
use crate::random::random;

/// Maximum bytes of the parameters file of a passphrase.
pub(super) const PARAMETERS_MAX: u64 = 4096;

/// Returns the value of a line `name = value`.
pub(crate) fn field_of<'a>(text: &'a str, name: &str) -> Result<&'a str, String> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    let found = lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
    found.ok_or_else(|| format!("no {name}"))
}

/// Permission bits that must be clear: group write, and all access by others.
const FORBIDDEN_MODE_BITS: u32 = 0o027;
const OWNER_WRITES: u32 = 0o200;
const GROUP_READS: u32 = 0o040;

/// Reads a file that holds an unencrypted key.
///
/// Rejects a file of this process's user that its owner can write and its group can read: only the owner should read such a file.
/// Accepts a file of another user, read through its group, and a file without write permission: Kubernetes mounts secrets in both
/// ways.
pub(super) fn read_key(path: &Path, max: u64) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
    let found = fs::metadata(path).map_err(|error| read_error(path, error))?;
    let mode = found.permissions().mode() & 0o777;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if own && mode & OWNER_WRITES != 0 && mode & GROUP_READS != 0 {
        return Err(KeyringError::Open { path: path.to_owned(), mode });
    }
    read_private(path, max)
}

fn read_error(path: &Path, error: io::Error) -> KeyringError {
    match error.kind() {
        io::ErrorKind::NotFound => KeyringError::Missing(path.to_owned()),
        _ => KeyringError::File { path: path.to_owned(), error },
    }
}

/// Reads a file that others must not read. `max` is the maximum size in bytes; one more byte is read to detect longer files.
pub(crate) fn read_private(path: &Path, max: u64) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
    let failed = |error| read_error(path, error);
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    // The group may read the file: Kubernetes mounts secrets in this way for a non-root user.
    if mode & FORBIDDEN_MODE_BITS != 0 {
        return Err(KeyringError::Open { path: path.to_owned(), mode });
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(PARAMETERS_MAX as usize));
    file.take(max + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Creates a file atomically, with mode 0600. Keeps an existing file, so that two processes that start concurrently read the same
/// key.
pub(crate) fn create_if_absent(path: &Path, content: &[u8]) -> Result<(), KeyringError> {
    let failed = |error| KeyringError::File { path: path.to_owned(), error };
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", HEXLOWER.encode(&*random::<8>())));
    let draft = PathBuf::from(name);
    let written = write_draft(&draft, content).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let removed = fs::remove_file(&draft);
    written.and(removed).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

fn write_draft(draft: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(content)?;
    file.sync_all()
}
