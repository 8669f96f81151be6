//! Contents of a file: its format and its certificates.

/// Format of a file with certificates.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    /// PEM (RFC 7468).
    Pem,
    /// DER: one certificate, or several concatenated.
    Der,
    /// PKCS#7 (RFC 5652 section 5, RFC 2315): certificates in a message that is usually unsigned.
    Pkcs7,
    /// PKCS#12 (RFC 7292).
    Pkcs12,
    /// JKS, Java's key store.
    Jks,
    /// JCEKS, the key store of the Java Cryptography Extension.
    Jceks,
}

impl Format {
    /// Returns the stable name for outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pem => "pem",
            Self::Der => "der",
            Self::Pkcs7 => "pkcs7",
            Self::Pkcs12 => "pkcs12",
            Self::Jks => "jks",
            Self::Jceks => "jceks",
        }
    }
}

/// A certificate and its location in the file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFound {
    /// The alias or friendly name if the format has one; without control characters.
    pub alias: Option<String>,
    /// Number of the entry in the file, from 0; the certificates of one chain share it (see [`Contents::chains`]).
    pub entry: u32,
    /// Position in the entry's chain, from 0, leaf first.
    pub index: u32,
    /// The bytes as read. They may not be a valid certificate.
    pub der: Vec<u8>,
}

/// Result of reading a file: its format and its certificates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Contents {
    /// Format, detected from the content of the file.
    pub format: Format,
    /// The certificates in file order.
    pub certificates: Vec<CertificateFound>,
    /// Descriptions of parts that were not read, with the reason.
    pub notes: Vec<String>,
    /// Whether the key store's integrity check was verified with one of the passwords (JKS and JCEKS). Certificates are readable
    /// without the password.
    pub integrity_verified: bool,
}

impl Contents {
    pub(super) fn new(format: Format) -> Self {
        Self { format, certificates: Vec::new(), notes: Vec::new(), integrity_verified: false }
    }

    /// Adds a certificate; its entry and index are set later.
    pub(super) fn push(&mut self, alias: Option<String>, der: &[u8]) {
        self.certificates.push(CertificateFound { alias, entry: 0, index: 0, der: der.to_vec() });
    }
}

/// Returns a name from a file for display: truncated, without control characters.
pub(super) fn display_name(name: &str) -> String {
    /// Maximum length of a displayed alias; real ones are short.
    const NAME_MAX: usize = 200;
    name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}
