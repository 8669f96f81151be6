//! Whom we trust: the system's roots, and those given by hand.

use std::path::Path;
use std::sync::Arc;

use x509::Certificate;
use x509::verify::TrustStore;

/// The roots that chains are judged by.
pub struct Trusted {
    pub(crate) all: TrustStore,
    pub(crate) public: TrustStore,
}

/// Roots that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file could not be read.
    #[error("cannot read the roots in {path}")]
    Unreadable {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file holds no certificate.
    #[error("no certificate in {path}: --ca wants PEM or DER certificates")]
    Empty {
        /// Which file.
        path: String,
    },
}

impl Trusted {
    /// No roots at all.
    #[must_use]
    pub fn nobody() -> Self {
        Self { all: TrustStore::default(), public: TrustStore::default() }
    }

    /// The roots of this system. A machine without any is no error: chains are then untrusted, and
    /// the caller may say so.
    #[must_use]
    pub fn system() -> Self {
        let mut trusted = Self::nobody();
        for der in outbound::tls::system_roots() {
            if let Ok(root) = Certificate::parse(&der) {
                let root = Arc::new(root);
                trusted.all.add(root.clone());
                trusted.public.add(root);
            }
        }
        trusted
    }

    /// Roots there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nobody is trusted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Trusts `root` too. It makes no chain public.
    pub fn add(&mut self, root: Arc<Certificate>) {
        self.all.add(root);
    }

    /// Trusts every certificate in a PEM or DER file.
    ///
    /// # Errors
    /// When the file cannot be read or holds no certificate.
    pub fn add_file(&mut self, path: &Path) -> Result<usize, TrustError> {
        let name = || path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| TrustError::Unreadable { path: name(), source })?;
        let before = self.len();
        self.add_bytes(&bytes);
        match self.len() - before {
            0 => Err(TrustError::Empty { path: name() }),
            added => Ok(added),
        }
    }

    /// Trusts every certificate in PEM or DER bytes.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        if let Ok(root) = Certificate::parse(bytes) {
            self.add(Arc::new(root));
            return;
        }
        for (_, der) in x509::pem::certificates(bytes) {
            if let Ok(root) = Certificate::parse(&der) {
                self.add(Arc::new(root));
            }
        }
    }
}
