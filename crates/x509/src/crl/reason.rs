//! Why certificates are revoked.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// CRLReason (RFC 5280 section 5.3.1), which CRLs, OCSP and ACME number alike.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    /// 0: no reason given.
    Unspecified = 0,
    /// 1: the subject's key is, or may be, known to others.
    KeyCompromise = 1,
    /// 2: an authority's key is, or may be, known to others.
    CaCompromise = 2,
    /// 3: the subject's name or other facts changed.
    AffiliationChanged = 3,
    /// 4: another certificate took its place.
    Superseded = 4,
    /// 5: no longer needed.
    CessationOfOperation = 5,
    /// 6: on hold, the only one that can be taken back.
    CertificateHold = 6,
    /// 8: no longer on hold, or expired; in delta CRLs only.
    RemoveFromCrl = 8,
    /// 9: a privilege in it was withdrawn.
    PrivilegeWithdrawn = 9,
    /// 10: an attribute authority's key is, or may be, known to others.
    AaCompromise = 10,
}

/// Text or a number that is no reason.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{0:?} is no revocation reason; these are: unspecified, keyCompromise, cACompromise, \
     affiliationChanged, superseded, cessationOfOperation, certificateHold, removeFromCRL, \
     privilegeWithdrawn, aACompromise"
)]
pub struct BadReason(String);

impl Reason {
    /// Every reason, by number.
    pub const ALL: [Self; 10] = [
        Self::Unspecified,
        Self::KeyCompromise,
        Self::CaCompromise,
        Self::AffiliationChanged,
        Self::Superseded,
        Self::CessationOfOperation,
        Self::CertificateHold,
        Self::RemoveFromCrl,
        Self::PrivilegeWithdrawn,
        Self::AaCompromise,
    ];

    /// The number in CRLs, OCSP and ACME.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reason of that number; there is no 7.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| i64::from(reason.code()) == code)
    }

    /// RFC 5280's spelling.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::KeyCompromise => "keyCompromise",
            Self::CaCompromise => "cACompromise",
            Self::AffiliationChanged => "affiliationChanged",
            Self::Superseded => "superseded",
            Self::CessationOfOperation => "cessationOfOperation",
            Self::CertificateHold => "certificateHold",
            Self::RemoveFromCrl => "removeFromCRL",
            Self::PrivilegeWithdrawn => "privilegeWithdrawn",
            Self::AaCompromise => "aACompromise",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Reason {
    type Err = BadReason;

    /// RFC 5280's spelling, case, hyphens and underscores aside.
    fn from_str(text: &str) -> Result<Self, BadReason> {
        let letters: String = text.chars().filter(|c| !matches!(c, '-' | '_')).collect();
        let found = Self::ALL.into_iter().find(|reason| reason.name().eq_ignore_ascii_case(&letters));
        found.ok_or_else(|| BadReason(text.chars().take(40).collect()))
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_named_and_numbered() {
        for reason in Reason::ALL {
            assert_eq!(reason.name().parse(), Ok(reason));
            assert_eq!(Reason::from_code(reason.code().into()), Some(reason));
            let json = serde_json::to_string(&reason).unwrap();
            assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), reason);
        }
        assert_eq!("key-compromise".parse(), Ok(Reason::KeyCompromise));
        assert_eq!("remove_from_crl".parse(), Ok(Reason::RemoveFromCrl));
        for bad in [-1, 7, 11, 256] {
            assert_eq!(Reason::from_code(bad), None);
        }
        assert!("compromised".parse::<Reason>().is_err());
    }
}
