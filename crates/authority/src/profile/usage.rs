//! Key usages and extended key usages, as written in profiles.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use x509::KeyUsage;

/// Names and OIDs of the extended key usages under id-kp (RFC 5280 section 4.2.1.12).
const PURPOSES: [(&str, &str); 6] = [
    ("serverAuth", "1.3.6.1.5.5.7.3.1"),
    ("clientAuth", "1.3.6.1.5.5.7.3.2"),
    ("codeSigning", "1.3.6.1.5.5.7.3.3"),
    ("emailProtection", "1.3.6.1.5.5.7.3.4"),
    ("timeStamping", "1.3.6.1.5.5.7.3.8"),
    ("OCSPSigning", "1.3.6.1.5.5.7.3.9"),
];

/// OID of id-kp-OCSPSigning.
pub(crate) const OCSP_SIGNING: &str = "1.3.6.1.5.5.7.3.9";

/// Extensions that the CA always sets itself. A CSR cannot supply them.
pub(super) const CA_CONTROLLED_EXTENSIONS: [&str; 14] = [
    "2.5.29.14",
    "2.5.29.15",
    "2.5.29.17",
    "2.5.29.19",
    "2.5.29.30",
    "2.5.29.31",
    "2.5.29.32",
    "2.5.29.35",
    "2.5.29.36",
    "2.5.29.37",
    "2.5.29.46",
    "1.3.6.1.5.5.7.1.1",
    "1.3.6.1.5.5.7.1.24",
    "1.3.6.1.5.5.7.48.1.5",
];

/// Returns whether the text is a dotted object identifier.
pub(super) fn is_dotted(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && x509::der::oid_content(text).is_some()
}

/// An extended key usage: its name in RFC 5280 (`serverAuth`) or a dotted OID.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct KeyPurpose(String);

impl KeyPurpose {
    /// Returns the extended key usage of TLS servers.
    #[must_use]
    pub fn server_auth() -> Self {
        Self(PURPOSES[0].1.to_owned())
    }

    /// Returns the extended key usage of TLS clients.
    #[must_use]
    pub fn client_auth() -> Self {
        Self(PURPOSES[1].1.to_owned())
    }

    /// Parses a name or a dotted OID.
    ///
    /// # Errors
    /// Fails if the text is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, oid)) = PURPOSES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(Self((*oid).to_owned()));
        }
        if is_dotted(text) {
            return Ok(Self(text.to_owned()));
        }
        let names: Vec<&str> = PURPOSES[..5].iter().map(|(name, _)| *name).collect();
        Err(format!("{text:?} is not a key purpose: use {} or a dotted object identifier", names.join(", ")))
    }

    /// Returns the dotted OID.
    #[must_use]
    pub fn oid(&self) -> &str {
        &self.0
    }

    /// Returns whether the usage lets the subject act on behalf of the CA.
    pub(super) fn is_ca_delegation(&self) -> bool {
        self.0 == OCSP_SIGNING
    }
}

impl fmt::Display for KeyPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = PURPOSES.iter().find(|(_, oid)| *oid == self.0);
        f.write_str(known.map_or(self.0.as_str(), |(name, _)| name))
    }
}

impl Serialize for KeyPurpose {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyPurpose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A bit of the key usage extension that a leaf may have (RFC 5280 section 4.2.1.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are in the RFC's section")]
pub enum KeyUsageName {
    DigitalSignature,
    ContentCommitment,
    KeyEncipherment,
    DataEncipherment,
    KeyAgreement,
    EncipherOnly,
    DecipherOnly,
}

impl KeyUsageName {
    fn bit(self) -> u16 {
        match self {
            Self::DigitalSignature => KeyUsage::DIGITAL_SIGNATURE,
            Self::ContentCommitment => 1 << 1,
            Self::KeyEncipherment => KeyUsage::KEY_ENCIPHERMENT,
            Self::DataEncipherment => 1 << 3,
            Self::KeyAgreement => KeyUsage::KEY_AGREEMENT,
            Self::EncipherOnly => 1 << 7,
            Self::DecipherOnly => 1 << 8,
        }
    }

    /// Returns the extension with all of these bits.
    #[must_use]
    pub fn all(names: &[Self]) -> KeyUsage {
        KeyUsage(names.iter().fold(0, |bits, name| bits | name.bit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_purposes_are_parsed_from_names_or_oids() {
        for (text, oid, shown) in [
            ("serverAuth", "1.3.6.1.5.5.7.3.1", "serverAuth"),
            ("CLIENTAUTH", "1.3.6.1.5.5.7.3.2", "clientAuth"),
            ("1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.1", "serverAuth"),
            ("1.2.3.4", "1.2.3.4", "1.2.3.4"),
        ] {
            let purpose = KeyPurpose::parse(text).unwrap();
            assert_eq!((purpose.oid(), purpose.to_string().as_str()), (oid, shown));
        }
        assert!(KeyPurpose::parse("web").unwrap_err().contains("serverAuth"));
    }

    #[test]
    fn key_usage_bits_match_rfc_5280() {
        let names =
            [KeyUsageName::DigitalSignature, KeyUsageName::KeyEncipherment, KeyUsageName::DecipherOnly];
        assert_eq!(KeyUsageName::all(&names).0, 0b1_0000_0101);
    }
}
