//! Renewal of the node's certificate at two thirds of its lifetime.

use std::sync::Arc;
use std::time::Duration;

use enrollment::client::{REQUEST_TIMEOUT, bare_csr};

use super::{KeyNode, NodeError, NodeTls, api_of, tls_failed, tls_of};
use crate::work::{EnrolledNode, NodeRenewal};

/// Interval of checks whether a renewal is due, and of retries.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

impl KeyNode {
    /// Renews certificates forever. A failure is only logged: the current certificate is valid for days.
    pub(super) async fn renew(&self, on_tls: impl Fn(&NodeTls)) {
        loop {
            let (due, until) = {
                let presented = self.presented.lock();
                (presented.1.renew_at(), presented.1.leaf.not_after.0)
            };
            if self.clock.now_seconds() >= due {
                match self.renewed().await {
                    Ok(tls) => on_tls(&tls),
                    Err(error) => {
                        tracing::warn!(%error, until, "the node's certificate could not be renewed yet")
                    }
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn renewed(&self) -> Result<NodeTls, NodeError> {
        let key = self.presented.lock().1.key.clone();
        let request = NodeRenewal { csr_pem: bare_csr(&key)? };
        let renewed: EnrolledNode =
            self.api().post("/api/v1/key-nodes/self/renew", &request, REQUEST_TIMEOUT).await?;
        let mut settings = self.presented.lock().0.clone();
        let (settings, identity, api) = self
            .run_blocking(move |folder| {
                let joined = folder.joined();
                joined.write_certificate(&key, &renewed.certificate_pem)?;
                if !renewed.ca_pem.is_empty() {
                    joined.add_ca(&renewed.ca_pem)?;
                }
                let identity = joined.identity()?.ok_or_else(|| NodeError::NotJoined(joined.path("")))?;
                settings.nodes_ca_pem = renewed.ca_pem;
                folder.write_settings(&settings)?;
                let api = api_of(folder, &settings, &identity)?;
                Ok((settings, identity, api))
            })
            .await?;
        let tls = tls_of(&settings, &identity)?;
        self.router.change_tls(&tls.client()).map_err(tls_failed)?;
        *self.api.write() = Arc::new(api);
        tracing::info!(until = identity.leaf.not_after.0, "the node's certificate was renewed");
        *self.presented.lock() = (settings, identity);
        Ok(tls)
    }
}
