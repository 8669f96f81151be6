//! Conversions shared by the AWS sources.

use clouds::{ApiError, Chain};

/// Returns the error for a response without a required member.
pub(super) fn missing(what: &str) -> ApiError {
    ApiError::malformed(&format!("the response has no {what}"))
}

/// Parses a PEM certificate and its PEM chain.
pub(super) fn chain_of(certificate: Option<&str>, above: Option<&str>) -> Chain {
    let both = [certificate, above].into_iter().flatten();
    let chain: Vec<Vec<u8>> = both
        .flat_map(|pem| x509::pem::certificates(pem.as_bytes()).map(|(_, der)| der).collect::<Vec<_>>())
        .collect();
    if chain.is_empty() {
        Chain::None("AWS returned no readable certificate".to_owned())
    } else {
        Chain::Read(chain)
    }
}
