//! Whether a Unix socket may be trusted.

use std::path::Path;

use crate::Error;

/// Whether a socket may be trusted with what it is asked for: its owner is root, anyone who runs this, or the owner of the
/// folder it lies in. In `/tmp` anybody could have made it.
///
/// # Errors
/// [`Error::Invalid`] says whose it is.
pub fn check_socket(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(socket), Ok(folder)) = (std::fs::symlink_metadata(path), std::fs::metadata(folder)) else {
        // Not there yet: connecting says so.
        return Ok(());
    };
    let own = rustix::process::geteuid().as_raw();
    if [0, own, folder.uid()].contains(&socket.uid()) {
        return Ok(());
    }
    Err(Error::invalid(format_args!(
        "{} belongs to user {}, who owns neither this process nor its folder",
        path.display(),
        socket.uid()
    )))
}
