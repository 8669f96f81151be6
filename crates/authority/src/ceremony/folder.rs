//! The folder a ceremony fills: each file written once, whole, and remembered by its hash.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use x509::Fingerprint;

use super::transcript::FileFacts;

/// An empty folder being filled.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    files: Vec<FileFacts>,
}

impl Folder {
    /// Makes the folder, for its owner only; one that is there must be empty, so that nothing is overwritten.
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_dir(path)?.next().is_some() {
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty"));
                }
            }
            made => made?,
        }
        Ok(Self { path: path.to_owned(), files: Vec::new() })
    }

    /// Writes a file that the transcript lists.
    pub(crate) fn write(&mut self, name: &str, content: &[u8], secret: bool) -> io::Result<()> {
        self.write_unlisted(name, content, secret)?;
        self.files.push(FileFacts {
            name: name.to_owned(),
            octets: content.len() as u64,
            sha256: Fingerprint::of(content),
            secret,
        });
        Ok(())
    }

    /// Writes a file that cannot be listed: the transcript itself.
    pub(crate) fn write_unlisted(&self, name: &str, content: &[u8], secret: bool) -> io::Result<()> {
        let mode = if secret { 0o600 } else { 0o644 };
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(self.path.join(name))?;
        file.write_all(content)?;
        file.sync_all()
    }

    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    pub(crate) fn files(&self) -> &[FileFacts] {
        &self.files
    }

    /// Makes the names last too.
    pub(crate) fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }
}
