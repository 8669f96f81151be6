//! Certificate files, which define the available keys. Files with a private key are rejected.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keyless::wire::Ski;
use keyless::{FileKind, FileProblem, Folder};
use keys::{KeyType, Scheme};
use x509::Certificate;
use zeroize::Zeroizing;

use crate::report;

/// Maximum bytes of a file: enough for a chain of ten of the largest certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of certificates in all directories. Programs iterate over all of them, more than once.
pub(crate) const CERTIFICATES_MAX: usize = 10_000;

/// A key, identified by its certificate.
#[derive(Debug)]
pub(crate) struct CertificateKey {
    pub(crate) leaf: Certificate,
    pub(crate) kind: KeyType,
    pub(crate) ski: Ski,
}

/// A certificate with its file name, without the extension.
pub(crate) type Named = (String, Arc<CertificateKey>);

/// Reason why a file contains no usable certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadCertificate {
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("the file is longer than {FILE_BYTES_MAX} bytes")]
    TooLong,
    #[error("the file contains a private key: keep the key in the key service, and only certificates here")]
    PrivateKey,
    #[error("the file contains no certificate")]
    Empty,
    #[error("the first certificate cannot be parsed: {0}")]
    Leaf(x509::ParseError),
    #[error(
        "the first certificate has an unsupported key: use RSA (2048, 3072, 4096 bits), ECDSA (P-256, P-384, P-521) or Ed25519"
    )]
    Kind,
    #[error(
        "the first certificate has an Ed25519 key: set `ed25519 = true` if your programs support Ed25519; OpenSSL's engine \
         of libp11 0.4.12 then finds no key at all"
    )]
    Ed25519,
}

impl BadCertificate {
    fn is_denied(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }
}

impl FileProblem for BadCertificate {
    fn may_heal(&self) -> bool {
        matches!(self, Self::Io(_))
    }
}

impl CertificateKey {
    fn read(path: &Path) -> Result<Arc<Self>, BadCertificate> {
        // Wipe the text after use, because the file may contain a private key.
        let mut text = Zeroizing::new(Vec::new());
        std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(BadCertificate::TooLong);
        }
        if x509::pem::blocks(&text).any(|(label, _)| label.ends_with("PRIVATE KEY")) {
            return Err(BadCertificate::PrivateKey);
        }
        let (_, first) = x509::pem::certificates(&text).next().ok_or(BadCertificate::Empty)?;
        let leaf = Certificate::parse(&first).map_err(BadCertificate::Leaf)?;
        let kind = KeyType::of(&leaf.public_key).filter(|kind| Scheme::of(*kind).is_some());
        let kind = kind.ok_or(BadCertificate::Kind)?;
        Ok(Arc::new(Self { ski: Ski::of_spki(&leaf.public_key.spki), kind, leaf }))
    }

    fn read_but_ed25519(path: &Path) -> Result<Arc<Self>, BadCertificate> {
        let known = Self::read(path)?;
        if known.kind == KeyType::Ed25519 { Err(BadCertificate::Ed25519) } else { Ok(known) }
    }
}

/// Directories of certificates, and the parsed certificates of their files.
pub(crate) struct Files {
    folders: Vec<Folder<Arc<CertificateKey>, BadCertificate>>,
    /// Names of files that could not be read.
    unreadable: HashSet<String>,
}

impl Files {
    /// Stores the directories. Reads nothing yet.
    pub(crate) fn new(folders: Vec<PathBuf>, ed25519: bool) -> Self {
        let read: fn(&Path) -> _ =
            if ed25519 { CertificateKey::read } else { CertificateKey::read_but_ed25519 };
        let kind = || FileKind { file_extension: "pem", companion: None, secret: false, read };
        let folders = folders.into_iter().map(|path| Folder::of(path, kind())).collect();
        Self { folders, unreadable: HashSet::new() }
    }

    /// Returns the current certificates by name. Unchanged files are not read again. An unreadable file keeps its previous
    /// certificate. Without a previous one, it gets the certificate in `before`, which a parent process has read. Errors are
    /// reported once, except for a file that only the parent process could read.
    ///
    /// # Errors
    /// The error of a directory. Nothing is changed then.
    pub(crate) fn refresh(&mut self, before: &[Named]) -> Result<Vec<Named>, String> {
        let mut all: Vec<Named> = Vec::new();
        for folder in &mut self.folders {
            let contents = folder.refresh().map_err(|error| error.to_string())?;
            let mut inherited = HashSet::new();
            if !contents.broken.is_empty() {
                let own: HashSet<&str> = contents.loaded.iter().map(|(file, _)| stem(file)).collect();
                inherited.extend(before.iter().map(|(name, _)| name.as_str()));
                inherited.retain(|name| !own.contains(name));
            }
            for (path, why) in contents.broken {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let name = stem(&file);
                if !(why.is_denied() && inherited.contains(name)) {
                    report::log(format_args!("cannot use the certificate in {}: {why}", path.display()));
                }
                if matches!(why, BadCertificate::Io(_)) {
                    self.unreadable.insert(name.to_owned());
                }
            }
            all.extend(contents.loaded.into_iter().map(|(file, known)| (stem(&file).to_owned(), known)));
        }
        let loaded: HashSet<&String> = all.iter().map(|(name, _)| name).collect();
        self.unreadable.retain(|name| !loaded.contains(name));
        all.extend(before.iter().filter(|(name, _)| self.unreadable.contains(name)).cloned());
        if all.len() > CERTIFICATES_MAX {
            return Err(format!(
                "there are {} certificates, at most {CERTIFICATES_MAX} are supported",
                all.len()
            ));
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        // With duplicate names, it would be random which key signs.
        match all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(format!(
                "two files are called {}.pem: rename one, because file names are used as labels",
                pair[0].0
            )),
            None => Ok(all),
        }
    }
}

fn stem(file: &str) -> &str {
    file.strip_suffix(".pem").unwrap_or(file)
}
