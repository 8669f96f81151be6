//! Trust anchors: the Mozilla root program, the system's store, and configured ones.

use std::path::Path;
use std::sync::Arc;

use coded::named;
use x509::verify::TrustStore;
use x509::{Certificate, Fingerprint};

named! {
    /// A store of trust anchors: compiled in, the system's, or configured.
    pub enum TrustAnchors: "store of trust anchors" {
        /// The Mozilla root program, as compiled into this version. Chains to it are publicly trusted.
        Mozilla => "mozilla",
        /// The trust store of the scanning system.
        System => "system",
        /// The certificates of `--ca` and `scan.ca_files`.
        Given => "given",
    }
}

/// The trust anchors for chain verification.
pub struct Trusted {
    pub(crate) all: TrustStore,
    mozilla: TrustStore,
    system: TrustStore,
    configured: TrustStore,
}

/// Reason why trust anchors cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file could not be read.
    #[error("cannot read the roots in {path}")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// Operating system error, for example for a missing file.
        #[source]
        source: std::io::Error,
    },
    /// The file contains no certificate.
    #[error("no certificate in {path}: --ca needs PEM or DER certificates")]
    Empty {
        /// Path of the file.
        path: String,
    },
}

impl Trusted {
    /// Creates an empty set of roots, so that no chain is trusted.
    #[must_use]
    pub fn trusting_none() -> Self {
        let none = TrustStore::default;
        Self { all: none(), mozilla: none(), system: none(), configured: none() }
    }

    /// Returns the roots of the Mozilla root program and of this system. A system without roots is not an error.
    #[must_use]
    pub fn system() -> Self {
        let mut trusted = Self::trusting_none();
        for der in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
            if let Ok(root) = Certificate::parse(der) {
                let root = Arc::new(root);
                trusted.all.add(root.clone());
                trusted.mozilla.add(root);
            }
        }
        for der in outbound::tls::system_roots() {
            // Most roots of the system are also in Mozilla's program: they share one parsed copy.
            let known = trusted.mozilla.exactly(&Fingerprint::of(&der)).cloned();
            if let Some(root) = known.or_else(|| Certificate::parse(&der).ok().map(Arc::new)) {
                trusted.all.add(root.clone());
                trusted.system.add(root);
            }
        }
        trusted
    }

    /// Returns the stores that trust `root`.
    #[must_use]
    pub(crate) fn trusting_stores(&self, root: &Certificate) -> Vec<TrustAnchors> {
        let stores = [
            (TrustAnchors::Mozilla, &self.mozilla),
            (TrustAnchors::System, &self.system),
            (TrustAnchors::Given, &self.configured),
        ];
        stores.into_iter().filter(|(_, store)| store.contains(root)).map(|(name, _)| name).collect()
    }

    /// Returns the roots of the Mozilla root program.
    pub(crate) fn public(&self) -> &TrustStore {
        &self.mozilla
    }

    /// Returns the number of roots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there are no trust anchors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a root. Chains to it do not become publicly trusted.
    pub fn add(&mut self, root: Arc<Certificate>) {
        self.all.add(root.clone());
        self.configured.add(root);
    }

    /// Trusts every certificate in a PEM or DER file; returns their number. Certificates that are trusted already count too.
    ///
    /// # Errors
    /// When the file cannot be read or contains no certificate.
    pub fn add_file(&mut self, path: &Path) -> Result<usize, TrustError> {
        let name = || path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| TrustError::Unreadable { path: name(), source })?;
        match self.add_bytes(&bytes) {
            0 => Err(TrustError::Empty { path: name() }),
            read => Ok(read),
        }
    }

    /// Adds `root` to the system's store, for tests.
    #[cfg(test)]
    pub(crate) fn add_to_system(&mut self, root: Arc<Certificate>) {
        self.all.add(root.clone());
        self.system.add(root);
    }

    /// Adds `root` to the Mozilla root program, for tests.
    #[cfg(test)]
    pub(crate) fn add_to_mozilla(&mut self, root: Arc<Certificate>) {
        self.all.add(root.clone());
        self.mozilla.add(root);
    }

    /// Trusts every certificate in PEM or DER bytes; returns their number.
    pub fn add_bytes(&mut self, bytes: &[u8]) -> usize {
        let roots = match Certificate::parse(bytes) {
            Ok(root) => vec![root],
            Err(_) => {
                x509::pem::certificates(bytes).filter_map(|(_, der)| Certificate::parse(&der).ok()).collect()
            }
        };
        let read = roots.len();
        roots.into_iter().for_each(|root| self.add(Arc::new(root)));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_known_roots_does_not_grow_the_trust_store() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roots.pem");
        let root = &webpki_root_certs::TLS_SERVER_ROOT_CERTS[0];
        std::fs::write(&file, x509::pem::encode("CERTIFICATE", root)).unwrap();
        let mut trusted = Trusted::system();
        let before = trusted.len();
        assert_eq!((trusted.add_file(&file).unwrap(), trusted.len()), (1, before));
        std::fs::write(&file, "no certificate").unwrap();
        assert!(matches!(trusted.add_file(&file), Err(TrustError::Empty { .. })));
    }
}
