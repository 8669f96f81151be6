//! What a file holds: its format and its certificates.

/// Format of a file.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    /// RFC 7468.
    Pem,
    /// A bare certificate, or several one behind the other.
    Der,
    /// RFC 5652 section 5, or RFC 2315: certificates in a signed (often: unsigned) message.
    Pkcs7,
    /// RFC 7292.
    Pkcs12,
    /// Java's own key store.
    Jks,
    /// Java's key store of the cryptography extension.
    Jceks,
}

impl Format {
    /// The stable word for outputs.
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

/// A certificate and where in the file it was.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFound {
    /// The alias or friendly name, where the format has one; free of control characters.
    pub alias: Option<String>,
    /// The entry of the file it belongs to, counted from 0; the certificates of one chain share it
    /// (see [`Contents::chains`]).
    pub entry: u32,
    /// Its place in the entry's chain, counted from 0, the holder's own first.
    pub index: u32,
    /// The bytes as found. Nothing has checked that they are a certificate.
    pub der: Vec<u8>,
}

/// Contents of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Contents {
    /// Format of the file.
    pub format: Format,
    /// In the file's order.
    pub certificates: Vec<CertificateFound>,
    /// What else there is to say: parts that were not read, and why.
    pub notes: Vec<String>,
    /// The store's own seal over its content was checked with one of the passwords given (JKS and
    /// JCEKS). Without the password certificates are readable all the same.
    pub seal_checked: bool,
}

impl Contents {
    pub(super) fn new(format: Format) -> Self {
        Self { format, certificates: Vec::new(), notes: Vec::new(), seal_checked: false }
    }

    /// Adds a certificate whose entry is yet to be found.
    pub(super) fn push(&mut self, alias: Option<String>, der: &[u8]) {
        self.certificates.push(CertificateFound { alias, entry: 0, index: 0, der: der.to_vec() });
    }
}

/// A name from a file as it may be shown: no control characters, bounded.
pub(super) fn shown(name: &str) -> String {
    /// Aliases are short; this is only against files made to annoy.
    const NAME_MAX: usize = 200;
    name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}
