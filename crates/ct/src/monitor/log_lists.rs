//! Sources of log lists.

use std::path::PathBuf;

use crate::ListSigner;

/// Sources of log lists (`log_list.json`, version 3).
#[derive(Clone, Debug)]
pub struct LogLists {
    /// URLs that are fetched daily.
    pub urls: Vec<String>,
    /// Files that are read daily. Their signatures are not verified.
    pub files: Vec<PathBuf>,
    /// Signers of lists. A list fetched from a URL of a signer must have a valid signature.
    pub signers: Vec<ListSigner>,
}

impl Default for LogLists {
    fn default() -> Self {
        Self { urls: Vec::new(), files: Vec::new(), signers: ListSigner::google().into_iter().collect() }
    }
}

impl LogLists {
    /// Returns whether there are no sources, so that no log is followed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.urls.is_empty() && self.files.is_empty()
    }
}
