//! Where lists of logs come from.

use std::path::PathBuf;

use crate::ListSigner;

/// Where lists of logs come from (`log_list.json`, version 3).
#[derive(Clone, Debug)]
pub struct LogLists {
    /// Fetched daily.
    pub urls: Vec<String>,
    /// Read daily. Anyone who put them there has verified them.
    pub files: Vec<PathBuf>,
    /// Anyone who signs lists: what is fetched from where one of them does counts only with the signature.
    pub signers: Vec<ListSigner>,
}

impl Default for LogLists {
    fn default() -> Self {
        Self { urls: Vec::new(), files: Vec::new(), signers: ListSigner::google().into_iter().collect() }
    }
}

impl LogLists {
    /// Whether no log is followed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.urls.is_empty() && self.files.is_empty()
    }
}
