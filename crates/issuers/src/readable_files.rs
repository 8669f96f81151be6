//! Files that an API-supplied configuration may name: only below directories that the host's configuration allows.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::error::IssuerError;

/// Maximum bytes of a file. A token has a few thousand.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Directories below which requests may name files. The default allows none. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ReadableFiles(Arc<[PathBuf]>);

impl ReadableFiles {
    /// Allows files below these directories, given by absolute paths.
    #[must_use]
    pub fn below(folders: Vec<PathBuf>) -> Self {
        Self(folders.into())
    }

    /// Checks whether the path as text is below an allowed directory. Opens nothing, so that a caller cannot find out which files
    /// exist.
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`] names the configuration key.
    pub(crate) fn check(&self, file: &str) -> Result<(), IssuerError> {
        let path = Path::new(file);
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if plain && path.is_absolute() && self.0.iter().any(|folder| path.starts_with(folder)) {
            return Ok(());
        }
        Err(refused(file))
    }

    /// Reads the file as text. Its resolved path must also be below an allowed directory.
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`] when the file is not allowed, does not exist, is not a regular file, or is too long.
    pub(crate) async fn read(&self, file: &str) -> Result<String, IssuerError> {
        self.check(file)?;
        let (this, file) = (self.clone(), file.to_owned());
        let read = tokio::task::spawn_blocking(move || this.read_blocking(&file)).await;
        read.map_err(|error| IssuerError::unavailable(error.to_string()))?
    }

    fn read_blocking(&self, file: &str) -> Result<String, IssuerError> {
        let unreadable = |error: std::io::Error| IssuerError::misconfigured(format!("{file}: {error}"));
        let real = std::fs::canonicalize(file).map_err(unreadable)?;
        let folders = self.0.iter().filter_map(|folder| std::fs::canonicalize(folder).ok());
        if !folders.into_iter().any(|folder| real.starts_with(folder)) {
            return Err(refused(file));
        }
        // Check the resolved path: reading a device or a pipe could block.
        let found = std::fs::symlink_metadata(&real).map_err(unreadable)?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            return Err(IssuerError::misconfigured(format!(
                "{file} is not a regular file of at most {FILE_BYTES_MAX} bytes"
            )));
        }
        std::fs::read_to_string(real).map_err(unreadable)
    }
}

fn refused(file: &str) -> IssuerError {
    IssuerError::misconfigured(format!(
        "the server may not read {file:?} for a request: add a folder above it to files.readable_folders in the server's \
         configuration file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_an_allowed_directory_are_accepted() {
        let files = ReadableFiles::below(vec!["/run/tokens".into()]);
        for good in ["/run/tokens/vault", "/run/tokens/a/b"] {
            assert_eq!(files.check(good), Ok(()), "{good}");
            assert!(ReadableFiles::default().check(good).is_err(), "{good}");
        }
        for bad in
            ["/etc/shadow", "/run/tokens/../secret", "/run/tokens-other/x", "run/tokens/x", "", "/run", "x"]
        {
            let error = files.check(bad).unwrap_err();
            assert!(error.to_string().contains("files.readable_folders"), "{bad}: {error}");
        }
    }

    #[tokio::test]
    async fn symlinks_out_of_an_allowed_directory_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (allowed, secret) = (folder.path().join("tokens"), folder.path().join("master.key"));
        std::fs::create_dir_all(allowed.join("..data")).unwrap();
        std::fs::write(&secret, "secret").unwrap();
        std::fs::write(allowed.join("..data/token"), "jwt").unwrap();
        std::os::unix::fs::symlink("..data/token", allowed.join("token")).unwrap();
        std::os::unix::fs::symlink(&secret, allowed.join("out")).unwrap();
        std::fs::write(allowed.join("long"), vec![b'x'; FILE_BYTES_MAX as usize + 1]).unwrap();
        let files = ReadableFiles::below(vec![allowed.clone()]);
        let read = async |name: &str| files.read(allowed.join(name).to_str().unwrap()).await;
        assert_eq!(read("token").await.unwrap(), "jwt", "as Kubernetes mounts it");
        for (name, words) in [
            ("out", "readable_folders"),
            ("long", "is not a regular file of at most"),
            ("..data", "is not a regular file of at most"),
            ("absent", "absent"),
        ] {
            let error = read(name).await.unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("secret\""), "{name}: {error}");
        }
    }
}
