//! Stored state of orders (URL and certificate), so that no order is issued twice.

use aws_lc_rs::digest::{SHA256, digest};
use store::{Clock, Store};
use uuid::Uuid;
use x509::csr::CertificateRequest;
use x509::der::Reader;

use crate::error::IssuerError;
use crate::order::{ORDER_KEY_MAX, Order};
use crate::tables;
use crate::tables::IssuerOrder;

/// Time in µs for which an order is stored. ACME orders are valid for at most a week.
pub(crate) const LIFE_US: i64 = 8 * 86_400 * 1_000_000;

/// Stored orders of one issuer.
pub(crate) struct OrderStore {
    store: Store,
    clock: Clock,
    issuer: Uuid,
}

impl std::fmt::Debug for OrderStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// The stored state of an order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct StoredOrder {
    /// URL of the order at the issuer.
    pub(crate) url: Option<String>,
    /// The issued chain in DER. `None` before the issuance.
    pub(crate) chain: Option<Vec<Vec<u8>>>,
}

impl OrderStore {
    pub(crate) fn new(store: Store, clock: Clock, issuer: Uuid) -> Self {
        Self { store, clock, issuer }
    }

    /// Returns the stored state of the order. An order with the same key but another public key counts as another order.
    pub(crate) async fn load_order_state(&self, order: &Order) -> Result<StoredOrder, IssuerError> {
        let spki_sha256 = spki_hash(order)?;
        let known = tables::ExternalIssuers::of(&self.store).order(self.issuer, &order.key).await?;
        Ok(match known.filter(|known| known.spki_sha256 == spki_sha256) {
            Some(known) => StoredOrder { url: known.url, chain: known.chain.as_deref().and_then(split) },
            None => StoredOrder::default(),
        })
    }

    pub(crate) async fn set_url(&self, order: &Order, url: &str) -> Result<(), IssuerError> {
        self.put(order, Some(url.to_owned()), None).await
    }

    /// Stores the issued chain.
    pub(crate) async fn delivered(&self, order: &Order, chain: &[Vec<u8>]) -> Result<(), IssuerError> {
        self.put(order, None, Some(chain.concat())).await
    }

    /// Deletes the stored state of a failed order.
    pub(crate) async fn forget(&self, order: &Order) -> Result<(), IssuerError> {
        Ok(tables::ExternalIssuers::of(&self.store).delete_order(self.issuer, &order.key).await?)
    }

    async fn put(
        &self,
        order: &Order,
        url: Option<String>,
        chain: Option<Vec<u8>>,
    ) -> Result<(), IssuerError> {
        let row =
            IssuerOrder { spki_sha256: spki_hash(order)?, url, chain, created_at_us: self.clock.now_us() };
        Ok(tables::ExternalIssuers::of(&self.store).put_order(self.issuer, &order.key, row).await?)
    }
}

fn spki_hash(order: &Order) -> Result<[u8; 32], IssuerError> {
    if order.key.is_empty() || order.key.len() > ORDER_KEY_MAX {
        return Err(IssuerError::Refused {
            reason: format!("an order's key must have 1 to {ORDER_KEY_MAX} bytes"),
        });
    }
    let request = parse_order_csr(order)?;
    let hash = digest(&SHA256, &request.public_key.spki);
    Ok(<[u8; 32]>::try_from(hash.as_ref()).unwrap_or_default())
}

pub(crate) fn parse_order_csr(order: &Order) -> Result<CertificateRequest, IssuerError> {
    CertificateRequest::parse(&order.csr_der)
        .map_err(|error| IssuerError::Refused { reason: format!("the CSR cannot be parsed: {error}") })
}

/// Splits concatenated DER certificates.
fn split(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut chain = Vec::new();
    while !bytes.is_empty() {
        let whole = Reader::new(bytes).any().ok()?.whole;
        chain.push(whole.to_vec());
        bytes = &bytes[whole.len()..];
    }
    Some(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_is_split_into_its_der_certificates() {
        assert_eq!(split(&[0x30, 1, 7, 0x30, 0]), Some(vec![vec![0x30, 1, 7], vec![0x30, 0]]));
        assert_eq!(split(&[]), Some(vec![]));
        assert_eq!(split(&[0x30, 9, 1]), None);
    }
}
