//! A Unix socket's place in the file system.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// For its owner, and root.
const MODE: u32 = 0o600;

/// A socket that is there.
#[derive(Debug)]
pub(super) struct Bound {
    path: PathBuf,
    /// What it is known by, so that another's is not removed.
    inode: u64,
}

impl Bound {
    /// Listens there. What is left of a server that is gone is replaced.
    pub(super) async fn at(path: &Path) -> io::Result<(Self, UnixListener)> {
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if !found.file_type().is_socket() || found.uid() != rustix::process::getuid().as_raw() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else is there"));
            }
            if UnixStream::connect(path).await.is_ok() {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server answers there"));
            }
        }
        // Under another name until nobody else may connect.
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}", std::process::id()));
        let new = PathBuf::from(new);
        let _ = std::fs::remove_file(&new);
        let listener = UnixListener::bind(&new)?;
        let place = || {
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(MODE))?;
            let inode = std::fs::symlink_metadata(&new)?.ino();
            std::fs::rename(&new, path)?;
            Ok(inode)
        };
        let inode = place().inspect_err(|_: &io::Error| drop(std::fs::remove_file(&new)))?;
        Ok((Self { path: path.to_owned(), inode }, listener))
    }

    pub(super) fn remove(&self) {
        let same = std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if same && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "the socket stays behind");
        }
    }
}
