//! Output directory of a ceremony. Each file is written completely and once, and its hash is recorded.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use x509::Fingerprint;

use super::transcript::FileFacts;

/// An output directory that is being written.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    files: Vec<FileFacts>,
}

impl Folder {
    /// Creates the directory with access for its owner only. An existing directory must be empty, so that nothing is overwritten.
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

    /// Writes a file and records it for the transcript.
    pub(crate) fn write(&mut self, name: &str, content: &[u8], secret: bool) -> io::Result<()> {
        self.write_without_recording(name, content, secret)?;
        self.files.push(FileFacts {
            name: name.to_owned(),
            octets: content.len() as u64,
            sha256: Fingerprint::of(content),
            secret,
        });
        Ok(())
    }

    /// Writes a file without recording it, for the transcript itself.
    pub(crate) fn write_without_recording(&self, name: &str, content: &[u8], secret: bool) -> io::Result<()> {
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

    /// Syncs the directory, so that the file names are durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }
}
