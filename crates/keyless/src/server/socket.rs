//! Files of Unix sockets.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// Mode of a socket: access for its owner, and root.
const MODE: u32 = 0o600;
/// Mode of the temporary folder in which a socket is created.
const FOLDER_MODE: u32 = 0o700;

/// A Unix socket in the file system.
#[derive(Debug)]
pub struct BoundSocket {
    path: PathBuf,
    /// Inode of the socket, so that a replacement is not removed.
    inode: u64,
}

impl BoundSocket {
    /// Listens at `path`. Replaces the socket of a server that no longer runs.
    ///
    /// # Errors
    /// An error of the system, another kind of file at `path`, or a server that responds there.
    #[crate::boxed]
    pub async fn at(path: &Path) -> io::Result<(Self, UnixListener)> {
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if !found.file_type().is_socket() || found.uid() != rustix::process::getuid().as_raw() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "the path exists and is not a socket of this user",
                ));
            }
            // A busy server causes another error.
            let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if !UnixStream::connect(path).await.is_err_and(is_refused) {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another server listens on this socket",
                ));
            }
        }
        // Bind in a private folder until the mode of the socket is set.
        let mut folder = path.as_os_str().to_owned();
        folder.push(format!(".{}", std::process::id()));
        let folder = PathBuf::from(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::DirBuilder::new().mode(FOLDER_MODE).create(&folder)?;
        let bind_socket = || {
            let new = folder.join("s");
            let listener = UnixListener::bind(&new)?;
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(MODE))?;
            let inode = std::fs::symlink_metadata(&new)?.ino();
            std::fs::rename(&new, path)?;
            Ok((Self { path: path.to_owned(), inode }, listener))
        };
        let placed = bind_socket();
        let _ = std::fs::remove_dir_all(&folder);
        placed
    }

    /// Removes the socket, unless another socket has replaced it.
    pub fn remove(&self) {
        let same = std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if same && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "cannot remove the socket");
        }
    }
}
