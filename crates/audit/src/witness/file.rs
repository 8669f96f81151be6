//! A file to which heads are appended.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;

use super::external::Witness;

/// A witness that appends each head to a file as a line. It returns once the line is synced to disk.
#[derive(Debug)]
pub(super) struct FileWitness {
    path: PathBuf,
}

impl FileWitness {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

impl Witness for FileWitness {
    fn name(&self) -> &'static str {
        "file"
    }

    fn send<'a>(&'a self, head: &'a str) -> BoxFuture<'a, Result<(), String>> {
        let (path, line) = (self.path.clone(), format!("{head}\n"));
        Box::pin(async move {
            let shown = path.display().to_string();
            let appended = tokio::task::spawn_blocking(move || append(&path, line.as_bytes())).await;
            match appended {
                Ok(done) => done.map_err(|error| format!("{shown}: {error}")),
                Err(error) => Err(format!("{shown}: {error}")),
            }
        })
    }
}

/// Opens the file in append mode only, so that the file may be append-only (`chattr +a`).
fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(line)?;
    file.sync_data()
}
