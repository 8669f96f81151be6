//! Checks whether a Unix socket may be trusted.

use std::path::Path;

use crate::Error;

/// Checks whether a socket may receive secret requests. Its owner must be root, the current user, or the owner of the folder that
/// contains it. In a folder such as `/tmp`, any user could have created it.
///
/// # Errors
/// [`Error::Invalid`] names the owner.
pub fn check_socket(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(socket), Ok(folder)) = (std::fs::symlink_metadata(path), std::fs::metadata(folder)) else {
        // The socket does not exist yet: connecting reports it.
        return Ok(());
    };
    let own = rustix::process::geteuid().as_raw();
    if [0, own, folder.uid()].contains(&socket.uid()) {
        return Ok(());
    }
    Err(Error::invalid(format_args!(
        "{} belongs to user {}, which owns neither this process nor the folder",
        path.display(),
        socket.uid()
    )))
}
