//! The client identity for key services. Read again when its files change.

use std::sync::Arc;

use arc_swap::ArcSwap;
use keyless::FileStamp;
use keyless::client::ClientOptions;

use crate::config::{ConfigError, Settings};
use crate::report::{ThrottledMessage, log};

/// Beginning of the message for files that cannot be used.
pub(crate) const KEPT: &str = "keeping the previous certificate for the key service";
/// End of the message for files that this process has no permission to read. After a reload of the program, a process with
/// permission reads them.
const RELOAD: &str = "; this process cannot read the file: reload the program (`nginx -s reload`)";
/// Seconds between two log lines about temporary errors, which are retried every few seconds.
const NOT_READ_PAUSE_S: u64 = 60;

/// The client certificate, its key and the trust anchors, as read from the files.
#[derive(Debug)]
pub(crate) struct Presented {
    pub(crate) options: ClientOptions,
    /// Stamps of the files before they were read. `None` for a file whose metadata could not be read.
    files: Vec<Option<FileStamp>>,
}

/// The newest readable client identity.
///
/// Uses no lock, because in a forked process the lock might be held by a thread that does not exist there.
#[derive(Debug)]
pub(crate) struct Identity(ArcSwap<Presented>);

impl Identity {
    /// Reads the certificate and the key of the client.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub(crate) fn read(settings: &Settings) -> Result<Self, ConfigError> {
        let files = stamps(settings);
        Ok(Self(ArcSwap::from_pointee(Presented { options: settings.client_options()?, files })))
    }

    /// Returns a copy for a forked process.
    pub(crate) fn inherited(&self) -> Self {
        Self(ArcSwap::new(self.0.load_full()))
    }

    /// Returns the current client identity. If its files cannot be used, the previous identity stays, and the error is reported
    /// once for each change of the files. For example, files cannot be used while only one of two has been replaced. After a
    /// temporary error the next call reads the files again. Files whose metadata cannot be read count as unchanged.
    pub(crate) fn refresh(&self, settings: &Settings) -> Arc<Presented> {
        static NOT_READ: ThrottledMessage = ThrottledMessage::every(NOT_READ_PAUSE_S);
        let before = self.0.load_full();
        let files = stamps(settings);
        let mut pairs = files.iter().zip(&before.files);
        if !pairs.any(|(now, before)| now.is_some() && now != before) {
            return before;
        }
        let options = match settings.client_options() {
            Ok(options) => options,
            Err(error) if error.may_heal() => {
                NOT_READ.log(format_args!("{KEPT}: {error}; retrying"));
                return before;
            }
            Err(error) => {
                log(format_args!("{KEPT}: {error}{}", if error.is_denied() { RELOAD } else { "" }));
                before.options.clone()
            }
        };
        let files = files.into_iter().zip(&before.files).map(|(now, before)| now.or(*before)).collect();
        let next = Arc::new(Presented { options, files });
        self.0.store(Arc::clone(&next));
        next
    }
}

fn stamps(settings: &Settings) -> Vec<Option<FileStamp>> {
    settings.identity_files().map(|path| path.metadata().ok().map(|found| FileStamp::of(&found))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use keys::{KeyType, PrivateKey, Signer};
    use tempfile::TempDir;
    use x509::build::{CertificateSpec, signed, tbs_certificate};
    use x509::{DistinguishedName, SerialNumber, UnixTime};

    use super::*;

    fn put(folder: &Path, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(folder.join("new"), text).unwrap();
        std::fs::rename(folder.join("new"), folder.join(name)).unwrap();
    }

    /// Writes a self-signed certificate and its key.
    fn put_pair(folder: &Path) {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let name = DistinguishedName::from_text("CN=own").unwrap();
        let tbs = tbs_certificate(&CertificateSpec {
            serial: &SerialNumber::from_random([7; 16]),
            signature: key.algorithm(),
            issuer: &name.der,
            subject: &name.der,
            not_before: UnixTime(1_700_000_000),
            not_after: UnixTime(2_500_000_000),
            spki: key.spki(),
            extensions: &[],
        });
        let der = signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap());
        put(folder, "own.key", &*key.to_pkcs8_pem());
        for name in ["own.pem", "ca.pem"] {
            put(folder, name, x509::pem::encode("CERTIFICATE", &der));
        }
    }

    fn identity() -> (TempDir, Settings, Identity) {
        let folder = tempfile::tempdir().unwrap();
        put_pair(folder.path());
        let [chain, key, ca] = ["own.pem", "own.key", "ca.pem"].map(|name| folder.path().join(name));
        let text = format!(
            "keys = ['tls:localhost:1']\ncertificates = ['/a']\nkeys_certificate_file = {chain:?}\nkeys_key_file = {key:?}\n\
             keys_ca_files = [{ca:?}]"
        );
        put(folder.path(), "pkcs11.toml", text);
        let settings = Settings::read(&folder.path().join("pkcs11.toml")).unwrap();
        let identity = Identity::read(&settings).unwrap();
        (folder, settings, identity)
    }

    fn roots(presented: &Presented) -> &[Vec<u8>] {
        &presented.options.tls.as_ref().unwrap().server_roots
    }

    #[test]
    fn invalid_root_certificate_keeps_the_previous_identity() {
        let (folder, settings, identity) = identity();
        let before = identity.refresh(&settings);
        put(folder.path(), "ca.pem", x509::pem::encode("CERTIFICATE", b"no certificate"));
        let after = identity.refresh(&settings);
        assert_eq!(roots(&after), roots(&before));
        assert!(Arc::ptr_eq(&identity.refresh(&settings), &after), "it is told once");
        let refused = Identity::read(&settings).unwrap_err().to_string();
        assert!(refused.contains("keys_ca_files"), "{refused}");
        put_pair(folder.path());
        assert_ne!(roots(&identity.refresh(&settings)), roots(&before));
    }

    #[test]
    fn unreadable_key_file_keeps_the_previous_identity_and_is_retried() {
        let (folder, settings, identity) = identity();
        let before = identity.refresh(&settings);
        // The file has metadata, but reading its first byte fails with EIO, because nothing is mapped there.
        std::os::unix::fs::symlink("/proc/self/mem", folder.path().join("new")).unwrap();
        std::fs::rename(folder.path().join("new"), folder.path().join("own.key")).unwrap();
        assert!(Arc::ptr_eq(&identity.refresh(&settings), &before), "the next look finds it changed");
        put_pair(folder.path());
        assert_ne!(roots(&identity.refresh(&settings)), roots(&before));
    }

    #[test]
    fn permission_errors_are_permanent_and_resource_errors_transient() {
        let of = |kind: std::io::ErrorKind| ConfigError::Io { path: "own.key".into(), source: kind.into() };
        let denied = of(std::io::ErrorKind::PermissionDenied);
        assert!(denied.is_denied() && !denied.may_heal());
        let key = ConfigError::Key(std::io::Error::from_raw_os_error(24).into());
        for passing in [of(std::io::ErrorKind::OutOfMemory), key] {
            assert!(passing.may_heal() && !passing.is_denied());
        }
        assert!(!ConfigError::NoCertificate.may_heal());
    }
}
