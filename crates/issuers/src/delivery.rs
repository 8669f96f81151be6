//! The certificate chain that an issuer delivers.

use callout::excerpt;

use crate::error::IssuerError;

/// The certificate chain that an issuer delivered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeliveredChain {
    /// DER chain with the leaf first, each certificate signed by the next, without roots.
    pub chain: Vec<Vec<u8>>,
}

/// Parses the certificates of a PEM text, in its order. At least one is required.
pub(crate) fn parse_pem_chain(body: &[u8]) -> Result<Vec<Vec<u8>>, IssuerError> {
    let chain: Vec<Vec<u8>> = x509::pem::certificates(body).map(|(_, der)| der).collect();
    if chain.is_empty() {
        let start = excerpt(&String::from_utf8_lossy(body));
        return Err(IssuerError::unavailable(format!("the response contains no PEM certificate: {start}")));
    }
    Ok(chain)
}
