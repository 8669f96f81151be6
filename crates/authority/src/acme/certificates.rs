//! Download of certificates (RFC 8555 section 7.4.2).

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use uuid::Uuid;

use super::fresh_certificates::FreshCertificate;
use super::problem::Problem;
use super::request::AccountRequest;
use super::{Server, respond};
use crate::issue::IssuedRef;
use crate::tables::acme::AcmeOrderStatus;

const PEM_CHAIN: &str = "application/pem-certificate-chain";

impl Server {
    /// Returns the certificate of an order with the default chain, or with the alternate chain of the given number.
    pub(crate) async fn certificate(
        &self,
        order: Uuid,
        chain: usize,
        signed: &AccountRequest,
    ) -> Result<Response<Bytes>, Problem> {
        signed.require_post_as_get()?;
        let cached =
            match self.fresh_certificates.get(order).filter(|cached| cached.account == signed.account.row.id)
            {
                Some(cached) => cached,
                None => self.certificate_of_order(order, signed).await?,
            };
        let ca = self.authority.ca_by_id(cached.ca).await.map_err(|error| {
            tracing::error!(%error, %order, "cannot load the issuer of a certificate");
            Problem::internal()
        })?;
        let above: &Arc<[Arc<[u8]>]> = match chain {
            0 => &ca.chain,
            number => ca.alternates.get(number - 1).ok_or_else(Problem::not_found)?,
        };
        let mut pem = x509::pem::encode("CERTIFICATE", &cached.der);
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

    async fn certificate_of_order(
        &self,
        order: Uuid,
        signed: &AccountRequest,
    ) -> Result<Arc<FreshCertificate>, Problem> {
        let (order, _) = self.order_of_account(order, signed).await?;
        let id = order
            .certificate
            .filter(|_| order.status == AcmeOrderStatus::Valid)
            .ok_or_else(Problem::not_found)?;
        let issued = self.authority.issued(&IssuedRef::Id(id)).await?.ok_or_else(Problem::not_found)?;
        Ok(Arc::new(FreshCertificate { account: order.account, der: issued.der.into(), ca: issued.ca }))
    }
}
