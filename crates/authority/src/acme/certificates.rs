//! Certificates handed out (RFC 8555 section 7.4.2).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flight::{Cache, Failed, Fresh};
use http::{HeaderValue, Response, header};
use store::acme::AcmeOrderStatus;
use uuid::Uuid;

use super::problem::Problem;
use super::request::OfAccount;
use super::{Inner, respond};
use crate::issue::{Issued, IssuedRef};

const PEM_CHAIN: &str = "application/pem-certificate-chain";
/// Certificates kept for clients that fetch them right after they were issued; a kilobyte or two each.
const FRESH_MAX: u64 = 4_096;
/// How long one is kept.
const FRESH_FOR: Duration = Duration::from_secs(60);

/// What a download needs.
#[derive(Debug)]
struct Kept {
    account: Uuid,
    der: Arc<[u8]>,
    ca: Uuid,
}

/// Certificates just issued, by order.
pub(crate) struct FreshCertificates(Cache<Uuid, Arc<Kept>, ()>);

impl FreshCertificates {
    pub(crate) fn new() -> Self {
        Self(Cache::with_entries(FRESH_MAX))
    }

    /// Keeps one for a while.
    pub(crate) async fn keep(&self, order: Uuid, account: Uuid, issued: &Issued) {
        let value = Arc::new(Kept { account, der: Arc::clone(&issued.der), ca: issued.ca });
        let kept = move || async move { Ok::<_, Failed<()>>(Fresh { value, lifetime: FRESH_FOR }) };
        // It cannot fail, and whoever kept it before kept the same.
        let _ = self.0.fetch(&order, kept).await;
    }

    fn get(&self, order: Uuid) -> Option<Arc<Kept>> {
        self.0.get(&order)?.outcome.as_ref().ok().cloned()
    }
}

impl Inner {
    /// The certificate of an order with a chain: the authority's own, or the alternate of that number.
    pub(crate) async fn certificate(
        &self,
        order: Uuid,
        chain: usize,
        signed: &OfAccount,
    ) -> Result<Response<Bytes>, Problem> {
        signed.must_get()?;
        let kept =
            match self.fresh_certificates.get(order).filter(|kept| kept.account == signed.account.row.id) {
                Some(kept) => kept,
                None => self.stored_certificate(order, signed).await?,
            };
        let ca = self.authority.ca_by_id(kept.ca).await.map_err(|error| {
            tracing::error!(%error, %order, "the issuer of a certificate cannot be had");
            Problem::internal()
        })?;
        let above: &Arc<[Arc<[u8]>]> = match chain {
            0 => &ca.chain,
            number => ca.alternates.get(number - 1).ok_or_else(Problem::not_found)?,
        };
        let mut pem = x509::pem::encode("CERTIFICATE", &kept.der);
        pem.extend(above.iter().map(|der| x509::pem::encode("CERTIFICATE", der)));
        let mut response = Response::new(Bytes::from(pem));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PEM_CHAIN));
        let url = self.url(format_args!("cert/{order}"));
        for number in (0..=ca.alternates.len()).filter(|number| *number != chain) {
            let other = if number == 0 { url.clone() } else { format!("{url}/{number}") };
            response = respond::with_link(response, &other, "alternate");
        }
        Ok(response)
    }

    async fn stored_certificate(&self, order: Uuid, signed: &OfAccount) -> Result<Arc<Kept>, Problem> {
        let (order, _) = self.own_order(order, signed).await?;
        let id = order
            .certificate
            .filter(|_| order.status == AcmeOrderStatus::Valid)
            .ok_or_else(Problem::not_found)?;
        let issued = self.authority.issued(&IssuedRef::Id(id)).await?.ok_or_else(Problem::not_found)?;
        Ok(Arc::new(Kept { account: order.account, der: issued.der.into(), ca: issued.ca }))
    }
}
