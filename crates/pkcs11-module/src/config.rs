//! The configuration file: key services and certificates.

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

/// Environment variable with the path of the configuration file.
pub(crate) const FILE_VARIABLE: &str = "BULLA_PKCS11_CONFIG";
/// Default path of the configuration file.
pub(crate) const FILE: &str = "/etc/bulla/pkcs11.toml";
/// Maximum bytes of the configuration file, and of each certificate file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of certificate directories in the configuration. One is usual.
const FOLDERS_MAX: usize = 64;
/// Maximum timeout of a signature in milliseconds. After a longer wait a TLS terminator has lost its client.
const SIGN_TIMEOUT_MS_MAX: u64 = 60_000;

/// Settings of the PKCS#11 module. The options have the same names as in `[edge]`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Key services in the order of preference: `unix:PATH` or `tls:HOST:PORT`.
    pub keys: Vec<String>,
    /// PEM file with the client certificate and its chain, for key services over TLS.
    #[serde(default)]
    pub keys_certificate_file: PathBuf,
    /// File with the private key of the client certificate.
    #[serde(default)]
    pub keys_key_file: PathBuf,
    /// PEM files with the only trust anchors for key services' certificates.
    #[serde(default)]
    pub keys_ca_files: Vec<PathBuf>,
    /// Directories of certificate chains (`*.pem`, leaf first, no keys): `DIR` or `DIR/*.pem`.
    pub certificates: Vec<PathBuf>,
    /// Whether programs can see certificates with Ed25519 keys. If true, a program that does not support such keys may fail to find
    /// any certificate.
    #[serde(default)]
    pub ed25519: bool,
    /// Timeout of a signature in milliseconds, at most 60,000.
    #[serde(default = "sign_timeout_ms")]
    pub sign_timeout_ms: u64,
}

const fn sign_timeout_ms() -> u64 {
    2_000
}

/// Reason why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file, or a file that it names, cannot be read.
    #[error("{path} cannot be read: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is too long.
    #[error("{0} is longer than {FILE_BYTES_MAX} bytes")]
    TooLong(PathBuf),
    /// The file is not valid TOML, or has a value of a wrong type or an unknown key.
    #[error("{path}: {source}")]
    Toml {
        /// Path of the file.
        path: PathBuf,
        /// The error and its position.
        source: Box<toml::de::Error>,
    },
    /// The address of a key service is invalid.
    #[error("keys: {0}")]
    Server(#[from] InvalidServer),
    /// A list is empty or has too many entries.
    #[error("{key}: {given} are given; give 1 to {most}")]
    Count {
        /// Name of the setting.
        key: &'static str,
        /// Number of given entries.
        given: usize,
        /// Maximum number of entries.
        most: usize,
    },
    /// The pattern of a certificate directory is not supported.
    #[error("certificates: {0} is not a folder: write DIR or DIR/*.pem")]
    Pattern(PathBuf),
    /// The timeout is zero or too long.
    #[error("sign_timeout_ms must be 1 to {SIGN_TIMEOUT_MS_MAX}")]
    Timeout,
    /// The client certificate or key for TLS is missing.
    #[error("a key service over TLS needs keys_certificate_file, keys_key_file and keys_ca_files")]
    NoCertificate,
    /// The file does not contain the expected PEM blocks.
    #[error("no certificate in {0}")]
    Empty(PathBuf),
    /// The client certificate's key cannot be read.
    #[error("keys_key_file: {0}")]
    Key(#[from] KeyFileError),
    /// The chain and the key do not match, or TLS does not support their type.
    #[error("keys_certificate_file: {0}")]
    Pair(#[from] rustls::Error),
    /// A trust anchor cannot be parsed.
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

    /// Returns whether the operating system denied access to the file.
    pub(crate) fn is_denied(&self) -> bool {
        self.io() == Some(io::ErrorKind::PermissionDenied)
    }

    /// Returns whether a later attempt may succeed with the same file.
    pub(crate) fn may_heal(&self) -> bool {
        self.io().is_some() && !self.is_denied()
    }
}

impl Settings {
    /// Reads the configuration file.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let bytes = read_at_most(path)?;
        let text = String::from_utf8_lossy(&bytes);
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

    /// Returns the certificate directories without duplicates.
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

    /// Returns the files of the client certificate and the trust anchors. Empty without TLS.
    pub(crate) fn identity_files(&self) -> impl Iterator<Item = &Path> {
        let own = [&self.keys_certificate_file, &self.keys_key_file];
        let all = own.into_iter().chain(&self.keys_ca_files).filter(|_| self.has_identity());
        all.map(PathBuf::as_path)
    }

    fn has_identity(&self) -> bool {
        !self.keys_certificate_file.as_os_str().is_empty()
    }

    /// Returns the timeout of a signature.
    pub(crate) fn sign_timeout(&self) -> Duration {
        Duration::from_millis(self.sign_timeout_ms)
    }

    /// Returns the key services, and the TLS credentials currently in the files.
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
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(io)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > FILE_BYTES_MAX { Err(ConfigError::TooLong(path.into())) } else { Ok(bytes) }
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
    fn minimal_config_has_key_services_and_certificates() {
        let read =
            settings("keys = ['unix:/run/keys.sock']\ncertificates = ['/a/*.pem', '/a', '/b']").unwrap();
        assert_eq!(read.folders().unwrap(), [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(read.sign_timeout(), Duration::from_secs(2));
        assert!(read.client_options().unwrap().tls.is_none());
    }

    #[test]
    fn invalid_config_is_rejected() {
        let usual = "keys = ['unix:/run/keys.sock']\ncertificates = ['/a']\n";
        for (text, wanted) in [
            ("certificates = ['/a']", "missing field `keys`"),
            ("keys = []\ncertificates = ['/a']", "keys: 0 are given"),
            ("keys = ['unix:/a']\ncertificates = []", "certificates: 0 are given"),
            ("keys = ['/a']\ncertificates = ['/a']", "is not a key service"),
            ("keys = ['tls:keys.example']\ncertificates = ['/a']", "a key service over TLS needs"),
            ("keys = ['unix:/a']\ncertificates = ['/a/*.crt']", "write DIR or DIR/*.pem"),
            ("keys = ['unix:/a']\ncertificates = ['*.pem']", "write DIR or DIR/*.pem"),
            (&format!("{usual}sign_timeout_ms = 0"), "must be 1 to 60000"),
            (&format!("{usual}sign_timeout_s = 1"), "unknown field `sign_timeout_s`"),
        ] {
            let found = settings(text).unwrap_err();
            assert!(found.contains(wanted), "{text}: {found}");
        }
        assert!(settings(usual).is_ok());
    }
}
