//! What a ceremony shall do.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use x509::{SerialNumber, crl::Reason};

use crate::tree::{NameLimits, NewCa};

/// Operators of one ceremony.
pub(crate) const OPERATORS_MAX: usize = 32;
/// Requests signed and certificates revoked in one ceremony, each.
pub(crate) const ITEMS_MAX: usize = 1_000;
/// Characters of an operator's name, the place and the notes, together with their own bounds in `check`.
pub(crate) const TEXT_MAX: usize = 4_000;

/// A root to be made, and what it signs at once.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CeremonyPlan {
    /// Who takes part, by name: 1 to 32.
    pub operators: Vec<String>,
    /// The location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Further notes for the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// The root.
    pub root: NewCa,
    /// Where the root will publish, as certificates it signs say.
    #[serde(default)]
    pub published: Published,
    /// Its first revocation list; none: none is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crl: Option<PlannedCrl>,
    /// Requests to sign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intermediates: Vec<PlannedIntermediate>,
}

/// What a root made before shall sign.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SigningPlan {
    /// As in [`CeremonyPlan`].
    pub operators: Vec<String>,
    /// As in [`CeremonyPlan`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// As in [`CeremonyPlan`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// As in [`CeremonyPlan`].
    #[serde(default)]
    pub published: Published,
    /// A new revocation list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crl: Option<PlannedCrl>,
    /// Requests to sign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intermediates: Vec<PlannedIntermediate>,
}

/// Addresses in the certificates a root signs; any may be missing.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Published {
    /// Where its revocation list will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl_url: Option<String>,
    /// Where its certificate will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_url: Option<String>,
    /// Where its OCSP responder will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ocsp_url: Option<String>,
}

/// A certification request to sign.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedIntermediate {
    /// Names the files: letters, digits, dots, hyphens, underscores and spaces.
    pub name: String,
    /// The request, PEM or DER (RFC 2986).
    pub request: PathBuf,
    /// The subject, if it replaces the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How long it is valid, seconds.
    pub lifetime_seconds: i64,
    /// How many authorities may stand below it in a path; 0 unless said.
    #[serde(default)]
    pub path_length: u32,
    /// Name constraints for certificates below it; the request's own are ignored.
    #[serde(default, skip_serializing_if = "NameLimits::is_empty")]
    pub name_limits: NameLimits,
    /// Policies, dotted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Extended key usages below it, dotted; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_key_usage: Vec<String>,
}

/// A revocation list of the root.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedCrl {
    /// Its number, above that of the list before (RFC 5280 section 5.2.3).
    #[serde(default = "first")]
    pub number: u64,
    /// How long it is valid, seconds.
    pub lifetime_seconds: i64,
    /// The revocations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<PlannedRevocation>,
}

/// A certificate of the root's that is revoked.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRevocation {
    /// Its serial number, hexadecimal.
    pub serial: SerialNumber,
    /// Why.
    pub reason: Reason,
    /// When, `2026-11-21T12:00:00Z`.
    pub at: String,
}

fn first() -> u64 {
    1
}

/// What both kinds of ceremony share.
pub(crate) struct Common<'a> {
    pub(crate) operators: &'a [String],
    pub(crate) location: Option<&'a str>,
    pub(crate) notes: Option<&'a str>,
    pub(crate) published: &'a Published,
    pub(crate) crl: Option<&'a PlannedCrl>,
    pub(crate) intermediates: &'a [PlannedIntermediate],
}

impl CeremonyPlan {
    pub(crate) fn common(&self) -> Common<'_> {
        Common {
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
    pub(crate) fn common(&self) -> Common<'_> {
        Common {
            operators: &self.operators,
            location: self.location.as_deref(),
            notes: self.notes.as_deref(),
            published: &self.published,
            crl: self.crl.as_ref(),
            intermediates: &self.intermediates,
        }
    }
}

impl Common<'_> {
    /// Checks the plan as a whole; its parts are checked when they are read.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1..=OPERATORS_MAX).contains(&self.operators.len()) {
            return Err(format!("name 1 to {OPERATORS_MAX} operators"));
        }
        let texts = self.operators.iter().map(String::as_str).chain(self.location).chain(self.notes);
        for text in texts {
            if text.trim().is_empty() || text.chars().count() > TEXT_MAX || text.chars().any(|c| c == '\0') {
                return Err(format!("operators, location and notes have 1 to {TEXT_MAX} characters each"));
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
                    "{url:?}: addresses in certificates are http:// URLs (RFC 5280 section 8)"
                ));
            }
        }
        Ok(())
    }
}
