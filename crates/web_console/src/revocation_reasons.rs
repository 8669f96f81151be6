//! Revocation reasons (RFC 5280 section 5.3.1) for display.

use x509::crl::Reason;

/// The reasons that a user may choose: the API's name, and its meaning.
const CHOICES: &[(Reason, &str)] = &[
    (Reason::KeyCompromise, "Key compromise: another party has or may have the private key"),
    (Reason::Superseded, "Superseded: another certificate replaces it"),
    (Reason::CessationOfOperation, "Cessation of operation: the service no longer exists"),
    (
        Reason::AffiliationChanged,
        "Affiliation changed: the subject's name or organisation is no longer correct",
    ),
    (Reason::PrivilegeWithdrawn, "Privilege withdrawn: the subject may no longer use the name"),
    (Reason::Unspecified, "Unspecified"),
];

/// Returns the options of a form that revokes permanently.
pub(crate) fn options() -> impl Iterator<Item = (&'static str, &'static str)> {
    CHOICES.iter().map(|(reason, meaning)| (reason.name(), *meaning))
}

/// Returns the options of a form that may also put a certificate on hold.
pub(crate) fn options_with_hold() -> impl Iterator<Item = (&'static str, &'static str)> {
    options().chain(std::iter::once((Reason::CertificateHold.name(), "Hold: can be lifted again")))
}

/// Returns the name of a reason code: `keyCompromise` as `key compromise`.
pub(crate) fn label(code: i64) -> String {
    let name = Reason::from_code(code).unwrap_or(Reason::Unspecified).name();
    let letters = name.chars().flat_map(|letter| {
        let space = letter.is_ascii_uppercase().then_some(' ');
        space.into_iter().chain(std::iter::once(letter.to_ascii_lowercase()))
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revocation_reason_codes_have_labels() {
        assert_eq!(label(1), "key compromise");
        assert_eq!(label(5), "cessation of operation");
        assert_eq!(label(0), "unspecified");
        assert_eq!(label(7), "unspecified");
    }
}
