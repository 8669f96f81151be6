//! Plans of ceremonies: the root, the CSRs to sign, and the CRL.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use x509::{SerialNumber, crl::Reason};

use crate::tree::{NameLimits, NewCa};

/// Maximum number of operators of one ceremony.
pub(crate) const OPERATORS_MAX: usize = 32;
/// Maximum number of CSRs, and of revoked certificates, in one ceremony.
pub(crate) const ITEMS_MAX: usize = 1_000;
/// Maximum length in characters of an operator's name, the location and the notes; `check` has further limits.
pub(crate) const TEXT_MAX: usize = 4_000;

/// A root to create, and the documents that it signs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CeremonyPlan {
    /// Names of the participants, 1 to 32.
    pub operators: Vec<String>,
    /// Location of the ceremony, recorded in the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Notes for the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Specification of the root to create.
    pub root: NewCa,
    /// URLs in the certificates that the root signs.
    #[serde(default)]
    pub published: Published,
    /// First CRL of the root; `None` for no CRL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crl: Option<PlannedCrl>,
    /// CSRs of intermediate CAs that the root signs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intermediates: Vec<PlannedIntermediate>,
}

/// Documents that an existing root signs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SigningPlan {
    /// Names of the participants, 1 to 32.
    pub operators: Vec<String>,
    /// Location of the ceremony, recorded in the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Notes for the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// CRL, issuer and OCSP URLs in the certificates that the root signs.
    #[serde(default)]
    pub published: Published,
    /// New CRL; `None` for no CRL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crl: Option<PlannedCrl>,
    /// CSRs of intermediate CAs that the root signs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intermediates: Vec<PlannedIntermediate>,
}

/// URLs in the certificates that a root signs. Each is optional.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Published {
    /// URL of the root's CRL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl_url: Option<String>,
    /// URL of the root certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_url: Option<String>,
    /// URL of the OCSP responder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ocsp_url: Option<String>,
}

/// A CSR of an intermediate CA to sign, and the contents of its certificate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedIntermediate {
    /// Base name of the files: letters, digits, dots, hyphens, underscores and spaces.
    pub name: String,
    /// Path of the CSR, PEM or DER (RFC 2986).
    pub request: PathBuf,
    /// Subject that replaces the subject of the CSR; `None` keeps the subject of the CSR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Lifetime of the intermediate's certificate in seconds.
    pub lifetime_seconds: i64,
    /// Maximum number of intermediate CAs below this CA in a chain; 0 by default.
    #[serde(default)]
    pub path_length: u32,
    /// Name constraints for certificates below this CA. Constraints in the CSR are ignored.
    #[serde(default, skip_serializing_if = "NameLimits::is_empty")]
    pub name_limits: NameLimits,
    /// Certificate policies, as dotted OIDs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Extended key usages allowed below this CA, as dotted OIDs. An empty list allows any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_key_usage: Vec<String>,
}

/// Contents of a CRL that the root signs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedCrl {
    /// CRL number, greater than the number of the previous CRL (RFC 5280 section 5.2.3).
    #[serde(default = "first")]
    pub number: u64,
    /// Lifetime of the CRL in seconds, until nextUpdate.
    pub lifetime_seconds: i64,
    /// Certificates that the CRL lists as revoked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<PlannedRevocation>,
}

/// A revoked certificate that the root issued.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRevocation {
    /// Serial number, hexadecimal.
    pub serial: SerialNumber,
    /// Revocation reason (RFC 5280 section 5.3.1).
    pub reason: Reason,
    /// Revocation time, such as `2026-11-21T12:00:00Z`.
    pub at: String,
}

fn first() -> u64 {
    1
}

/// Plan fields that both kinds of ceremony have in common.
pub(crate) struct CeremonyDetails<'a> {
    pub(crate) operators: &'a [String],
    pub(crate) location: Option<&'a str>,
    pub(crate) notes: Option<&'a str>,
    pub(crate) published: &'a Published,
    pub(crate) crl: Option<&'a PlannedCrl>,
    pub(crate) intermediates: &'a [PlannedIntermediate],
}

impl CeremonyPlan {
    pub(crate) fn common(&self) -> CeremonyDetails<'_> {
        CeremonyDetails {
            operators: &self.operators,
            location: self.location.as_deref(),
            notes: self.notes.as_deref(),
            published: &self.published,
            crl: self.crl.as_ref(),
            intermediates: &self.intermediates,
        }
    }
}

impl SigningPlan {
    pub(crate) fn common(&self) -> CeremonyDetails<'_> {
        CeremonyDetails {
            operators: &self.operators,
            location: self.location.as_deref(),
            notes: self.notes.as_deref(),
            published: &self.published,
            crl: self.crl.as_ref(),
            intermediates: &self.intermediates,
        }
    }
}

impl CeremonyDetails<'_> {
    /// Checks the plan as a whole. Its parts are checked when they are parsed.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1..=OPERATORS_MAX).contains(&self.operators.len()) {
            return Err(format!("list 1 to {OPERATORS_MAX} operators"));
        }
        let texts = self.operators.iter().map(String::as_str).chain(self.location).chain(self.notes);
        for text in texts {
            if text.trim().is_empty() || text.chars().count() > TEXT_MAX || text.chars().any(|c| c == '\0') {
                return Err(format!(
                    "operators, location and notes must have 1 to {TEXT_MAX} characters each"
                ));
            }
        }
        let revoked = self.crl.map_or(0, |crl| crl.revoked.len());
        if self.intermediates.len() > ITEMS_MAX || revoked > ITEMS_MAX {
            return Err(format!("more than {ITEMS_MAX} requests or revocations"));
        }
        for url in [&self.published.crl_url, &self.published.issuer_url, &self.published.ocsp_url] {
            let Some(url) = url else { continue };
            let plain =
                url.is_ascii() && url.parse::<http::Uri>().is_ok_and(|uri| uri.scheme_str() == Some("http"));
            if !plain {
                return Err(format!(
                    "{url:?}: URLs in certificates must be http:// URLs (RFC 5280 section 8)"
                ));
            }
        }
        Ok(())
    }
}
