//! The file that says which key services are asked, and for which certificates.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyless::client::{ClientOptions, ClientTls, InvalidServer, SERVERS_MAX, Server};
use keys::{KeyFileError, PrivateKey};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use serde::Deserialize;

/// Names the file.
pub(crate) const FILE_VARIABLE: &str = "BULLA_PKCS11_CONFIG";
/// The default path of the configuration.
pub(crate) const FILE: &str = "/etc/bulla/pkcs11.toml";
/// Bytes of the file, and of one with certificates.
const FILE_OCTETS_MAX: u64 = 1 << 20;
/// Folders of certificates. One is usual.
const FOLDERS_MAX: usize = 64;
/// The longest that a signature may be waited for: a terminator that waits longer has lost its client.
const SIGN_TIMEOUT_MS_MAX: u64 = 60_000;

/// The settings, with the names they have in `[edge]`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Key services in the order of preference: `unix:PATH` or `tls:HOST:PORT`.
    pub keys: Vec<String>,
    /// The own chain for key services over TLS (PEM).
    #[serde(default)]
    pub keys_certificate_file: PathBuf,
    /// The key of that chain.
    #[serde(default)]
    pub keys_key_file: PathBuf,
    /// The roots (PEM) below which key services' certificates stand; no others count.
    #[serde(default)]
    pub keys_ca_files: Vec<PathBuf>,
    /// Folders of chains (`*.pem`, leaf first, no keys): `DIR` or `DIR/*.pem`.
    pub certificates: Vec<PathBuf>,
    /// Whether certificates with Ed25519 keys are shown: programs that do not know such keys may find no others then, either.
    #[serde(default)]
    pub ed25519: bool,
    /// For a signature, from asked for to made; at most 60,000.
    #[serde(default = "sign_timeout_ms")]
    pub sign_timeout_ms: u64,
}

const fn sign_timeout_ms() -> u64 {
    2_000
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that they are in, or name.
    #[error("{path} cannot be read: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Longer than it may be.
    #[error("{0} is longer than {FILE_OCTETS_MAX} bytes")]
    TooLong(PathBuf),
    /// No TOML, a value of another type, or a key that nobody knows.
    #[error("{path}: {source}")]
    Toml {
        /// Which.
        path: PathBuf,
        /// The error and its position.
        source: Box<toml::de::Error>,
    },
    /// A text that names no key service.
    #[error("keys: {0}")]
    Server(#[from] InvalidServer),
    /// None, or too many.
    #[error("{key}: {given} are named; name 1 to {most}")]
    Count {
        /// Of what.
        key: &'static str,
        /// So many.
        given: usize,
        /// At most.
        most: usize,
    },
    /// A pattern that is none here.
    #[error("certificates: {0} names no folder: write DIR or DIR/*.pem")]
    Pattern(PathBuf),
    /// Too long, or none.
    #[error("sign_timeout_ms is from 1 to {SIGN_TIMEOUT_MS_MAX}")]
    Timeout,
    /// What TLS takes is missing.
    #[error("a key service over TLS takes keys_certificate_file, keys_key_file and keys_ca_files")]
    NoCertificate,
    /// A file without what should be in it.
    #[error("there is no certificate in {0}")]
    Empty(PathBuf),
    /// The own key.
    #[error("keys_key_file: {0}")]
    Key(#[from] KeyFileError),
    /// The chain and the key are not a pair, or are of a kind that TLS is not spoken with.
    #[error("keys_certificate_file: {0}")]
    Pair(#[from] rustls::Error),
    /// A block in those files is no certificate.
    #[error("keys_ca_files: {0}")]
    Roots(rustls::Error),
}

impl ConfigError {
    fn io(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } | Self::Key(KeyFileError::Io(source)) => Some(source.kind()),
            _ => None,
        }
    }

    /// The system keeps this process from reading it.
    pub(crate) fn is_denied(&self) -> bool {
        self.io() == Some(io::ErrorKind::PermissionDenied)
    }

    /// The system may read it the next time, though the file is the same.
    pub(crate) fn may_heal(&self) -> bool {
        self.io().is_some() && !self.is_denied()
    }
}

impl Settings {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let octets = read_at_most(path)?;
        let text = String::from_utf8_lossy(&octets);
        let of_toml = |error| ConfigError::Toml { path: path.into(), source: Box::new(error) };
        let settings: Self = toml::from_str(&text).map_err(of_toml)?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let counts =
            [("keys", self.keys.len(), SERVERS_MAX), ("certificates", self.certificates.len(), FOLDERS_MAX)];
        for (key, given, most) in counts {
            if given == 0 || given > most {
                return Err(ConfigError::Count { key, given, most });
            }
        }
        if !(1..=SIGN_TIMEOUT_MS_MAX).contains(&self.sign_timeout_ms) {
            return Err(ConfigError::Timeout);
        }
        self.folders()?;
        let speaks_tls = self.servers()?.iter().any(|server| matches!(server, Server::Tls { .. }));
        let files = [&self.keys_certificate_file, &self.keys_key_file];
        let has_all = files.iter().all(|file| !file.as_os_str().is_empty()) && !self.keys_ca_files.is_empty();
        if speaks_tls && !has_all {
            return Err(ConfigError::NoCertificate);
        }
        Ok(())
    }

    fn servers(&self) -> Result<Vec<Server>, ConfigError> {
        self.keys.iter().map(|text| Ok(text.parse()?)).collect()
    }

    /// Folders of certificates, each once.
    pub(crate) fn folders(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let mut folders = Vec::new();
        for named in &self.certificates {
            let is_pattern = named.file_name().is_some_and(|name| name == "*.pem");
            let folder = if is_pattern { named.parent().unwrap_or(named) } else { named };
            let text = folder.to_string_lossy();
            if text.is_empty() || text.contains('*') {
                return Err(ConfigError::Pattern(named.clone()));
            }
            if !folders.iter().any(|known| known == folder) {
                folders.push(folder.to_owned());
            }
        }
        Ok(folders)
    }

    /// Files of the client certificate and trust anchors; none without TLS.
    pub(crate) fn identity_files(&self) -> impl Iterator<Item = &Path> {
        let own = [&self.keys_certificate_file, &self.keys_key_file];
        let all = own.into_iter().chain(&self.keys_ca_files).filter(|_| self.has_identity());
        all.map(PathBuf::as_path)
    }

    fn has_identity(&self) -> bool {
        !self.keys_certificate_file.as_os_str().is_empty()
    }

    /// For a signature.
    pub(crate) fn sign_timeout(&self) -> Duration {
        Duration::from_millis(self.sign_timeout_ms)
    }

    /// Whom to ask, with what the files hold now; TLS takes it.
    pub(crate) fn client_options(&self) -> Result<ClientOptions, ConfigError> {
        let tls = if self.has_identity() { Some(self.tls()?) } else { None };
        Ok(ClientOptions { servers: self.servers()?, tls, ..ClientOptions::default() })
    }

    fn tls(&self) -> Result<ClientTls, ConfigError> {
        let chain = certificates(&self.keys_certificate_file)?;
        let pkcs8 = PrivateKey::from_file(&self.keys_key_file)?.to_pkcs8_der();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.as_slice()));
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let certified = CertifiedKey::new(chain, aws_lc_rs::sign::any_supported_type(&key)?);
        certified.keys_match()?;
        let mut server_roots = Vec::new();
        for path in &self.keys_ca_files {
            server_roots.extend(certificates(path)?);
        }
        let tls = ClientTls { certificate: Arc::new(certified), server_roots };
        tls.check().map_err(ConfigError::Roots)?;
        Ok(tls)
    }
}

fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, ConfigError> {
    let found: Vec<Vec<u8>> = x509::pem::certificates(&read_at_most(path)?).map(|(_, der)| der).collect();
    if found.is_empty() { Err(ConfigError::Empty(path.into())) } else { Ok(found) }
}

fn read_at_most(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let io = |source| ConfigError::Io { path: path.into(), source };
    let mut octets = Vec::new();
    std::fs::File::open(path).map_err(io)?.take(FILE_OCTETS_MAX + 1).read_to_end(&mut octets).map_err(io)?;
    if octets.len() as u64 > FILE_OCTETS_MAX { Err(ConfigError::TooLong(path.into())) } else { Ok(octets) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pkcs11.toml");
        std::fs::write(&path, text).unwrap();
        Settings::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn the_least_that_is_needed_is_services_and_certificates() {
        let read =
            settings("keys = ['unix:/run/keys.sock']\ncertificates = ['/a/*.pem', '/a', '/b']").unwrap();
        assert_eq!(read.folders().unwrap(), [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(read.sign_timeout(), Duration::from_secs(2));
        assert!(read.client_options().unwrap().tls.is_none());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let usual = "keys = ['unix:/run/keys.sock']\ncertificates = ['/a']\n";
        for (text, wanted) in [
            ("certificates = ['/a']", "missing field `keys`"),
            ("keys = []\ncertificates = ['/a']", "keys: 0 are named"),
            ("keys = ['unix:/a']\ncertificates = []", "certificates: 0 are named"),
            ("keys = ['/a']\ncertificates = ['/a']", "no key service"),
            ("keys = ['tls:keys.example']\ncertificates = ['/a']", "takes keys_certificate_file"),
            ("keys = ['unix:/a']\ncertificates = ['/a/*.crt']", "write DIR or DIR/*.pem"),
            ("keys = ['unix:/a']\ncertificates = ['*.pem']", "write DIR or DIR/*.pem"),
            (&format!("{usual}sign_timeout_ms = 0"), "from 1 to 60000"),
            (&format!("{usual}sign_timeout_s = 1"), "unknown field `sign_timeout_s`"),
        ] {
            let found = settings(text).unwrap_err();
            assert!(found.contains(wanted), "{text}: {found}");
        }
        assert!(settings(usual).is_ok());
    }
}
