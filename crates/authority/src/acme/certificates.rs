//! Certificates handed out (RFC 8555 section 7.4.2).

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use store::acme::AcmeOrderStatus;
use uuid::Uuid;

use super::problem::Problem;
use super::request::OfAccount;
use super::{Inner, respond};
use crate::issue::IssuedRef;

const PEM_CHAIN: &str = "application/pem-certificate-chain";

impl Inner {
    /// The certificate of an order with a chain: the authority's own, or the alternate of that number.
    pub(crate) async fn certificate(
        &self,
        order: Uuid,
        chain: usize,
        signed: &OfAccount,
    ) -> Result<Response<Bytes>, Problem> {
        signed.must_get()?;
        let (order, _) = self.own_order(order, signed).await?;
        let id = order
            .certificate
            .filter(|_| order.status == AcmeOrderStatus::Valid)
            .ok_or_else(Problem::not_found)?;
        let issued = self.authority.issued(&IssuedRef::Id(id)).await?.ok_or_else(Problem::not_found)?;
        let ca = self.authority.ca_by_id(issued.ca).await.map_err(|error| {
            tracing::error!(%error, certificate = %id, "the issuer of a certificate cannot be had");
            Problem::internal()
        })?;
        let above: &Arc<[Arc<[u8]>]> = match chain {
            0 => &ca.chain,
            number => ca.alternates.get(number - 1).ok_or_else(Problem::not_found)?,
        };
        let mut pem = x509::pem::encode("CERTIFICATE", &issued.der);
        pem.extend(above.iter().map(|der| x509::pem::encode("CERTIFICATE", der)));
        let mut response = Response::new(Bytes::from(pem));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PEM_CHAIN));
        let url = self.url(format_args!("cert/{}", order.id));
        for number in (0..=ca.alternates.len()).filter(|number| *number != chain) {
            let other = if number == 0 { url.clone() } else { format!("{url}/{number}") };
            response = respond::with_link(response, &other, "alternate");
        }
        Ok(response)
    }
}
