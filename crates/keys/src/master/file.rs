//! Files of master keys: made whole or not at all, and read by their owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use zeroize::Zeroizing;

use super::error::KeyringError;
use crate::random::random;

/// Bytes of the passphrase parameters file, at most.
pub(super) const PARAMETERS_MAX: u64 = 4096;

/// The value of a line `name = value`.
pub(crate) fn field_of<'a>(text: &'a str, name: &str) -> Result<&'a str, String> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    let found = lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
    found.ok_or_else(|| format!("no {name}"))
}

/// What nobody but the owner and readers of the group may do.
const CLOSED: u32 = 0o027;
const OWNER_WRITES: u32 = 0o200;
const GROUP_READS: u32 = 0o040;

/// Reads a file that holds a key as it is. Its owner alone reads it; so a file of this process' own user that is open to its
/// group is a mistake. A file of another user that this process reads by its group is none, and neither is one that nobody
/// writes: that is how Kubernetes mounts a secret.
pub(super) fn read_key(path: &Path, max: u64) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
    let found = fs::metadata(path).map_err(|error| unread(path, error))?;
    let mode = found.permissions().mode() & 0o777;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if own && mode & OWNER_WRITES != 0 && mode & GROUP_READS != 0 {
        return Err(KeyringError::Open { path: path.to_owned(), mode });
    }
    read_private(path, max)
}

fn unread(path: &Path, error: io::Error) -> KeyringError {
    match error.kind() {
        io::ErrorKind::NotFound => KeyringError::Missing(path.to_owned()),
        _ => KeyringError::File { path: path.to_owned(), error },
    }
}

/// Reads a file that others must not read. `max` is what it may hold; one byte more is read, so
/// that a longer one is noticed.
pub(crate) fn read_private(path: &Path, max: u64) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
    let failed = |error| unread(path, error);
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    // Group readers are allowed: that is how Kubernetes mounts a secret for a user that is not root.
    if mode & CLOSED != 0 {
        return Err(KeyringError::Open { path: path.to_owned(), mode });
    }
    let mut octets = Zeroizing::new(Vec::with_capacity(PARAMETERS_MAX as usize));
    file.take(max + 1).read_to_end(&mut octets).map_err(failed)?;
    Ok(octets)
}

/// Makes a file, mode 0600, whole or not at all; one that is there by now stays as it is: of two
/// processes that start at once both read the same key.
pub(crate) fn create_once(path: &Path, content: &[u8]) -> Result<(), KeyringError> {
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
