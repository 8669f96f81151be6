//! A Unix socket's place in the file system.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// For its owner, and root.
const MODE: u32 = 0o600;
/// Of the folder it is made in.
const FOLDER_MODE: u32 = 0o700;

/// A socket that is there.
#[derive(Debug)]
pub struct BoundSocket {
    path: PathBuf,
    /// What it is known by, so that another's is not removed.
    inode: u64,
}

impl BoundSocket {
    /// Listens there. What is left of a server that is gone is replaced.
    ///
    /// # Errors
    /// What the system said; something else that is there, or a server that answers.
    #[crate::boxed]
    pub async fn at(path: &Path) -> io::Result<(Self, UnixListener)> {
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if !found.file_type().is_socket() || found.uid() != rustix::process::getuid().as_raw() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else is there"));
            }
            // One that is only busy refuses in other words.
            let gone = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if !UnixStream::connect(path).await.is_err_and(gone) {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server answers there"));
            }
        }
        // In a folder that nobody else may look into, until nobody else may connect.
        let mut folder = path.as_os_str().to_owned();
        folder.push(format!(".{}", std::process::id()));
        let folder = PathBuf::from(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::DirBuilder::new().mode(FOLDER_MODE).create(&folder)?;
        let place = || {
            let new = folder.join("s");
            let listener = UnixListener::bind(&new)?;
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(MODE))?;
            let inode = std::fs::symlink_metadata(&new)?.ino();
            std::fs::rename(&new, path)?;
            Ok((Self { path: path.to_owned(), inode }, listener))
        };
        let placed = place();
        let _ = std::fs::remove_dir_all(&folder);
        placed
    }

    /// Takes it away, unless another has taken its place.
    pub fn remove(&self) {
        let same = std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if same && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "the socket stays behind");
        }
    }
}
