//! ClientHello processing: chooses the certificate and the ALPN protocols.

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::RwLock;
use s2n_tls::callbacks::{ClientHelloCallback, ConnectionFuture};
use s2n_tls::config::{Builder, Config};
use s2n_tls::connection::Connection;
use s2n_tls::error::Error;

use super::alert::{MISSING_EXTENSION, UNRECOGNIZED_NAME};
use super::greeting::{HandshakeState, SelectedSite};
use super::routes::LiveRoutes;
use super::sites::{SiteSelectionError, Sites, policy};

/// Current sites (certificates by server name). A reload replaces them.
pub(super) type CurrentSites = Arc<RwLock<Arc<Sites>>>;

/// A callback that chooses the certificate by server name (SNI).
struct Chooser {
    sites: CurrentSites,
    routes: LiveRoutes,
}

/// Returns the TLS configuration for new connections. The certificate's own configuration replaces it once the ClientHello is read.
pub(super) fn config(sites: CurrentSites, routes: LiveRoutes) -> Result<Config, Error> {
    let mut builder = Builder::new();
    builder.with_system_certs(false)?;
    builder.set_security_policy(&policy()?)?;
    builder.set_client_hello_callback(Chooser { sites, routes })?;
    builder.build()
}

impl ClientHelloCallback for Chooser {
    fn on_client_hello(
        &self,
        connection: &mut Connection,
    ) -> Result<Option<Pin<Box<dyn ConnectionFuture>>>, Error> {
        let name = connection.server_name().map(str::to_owned);
        let sites = Arc::clone(&self.sites.read());
        let site = sites.choose(name.as_deref()).map_err(|why| {
            let alert = match why {
                SiteSelectionError::UnknownName => UNRECOGNIZED_NAME,
                SiteSelectionError::NoName => MISSING_EXTENSION,
            };
            if let Some(greeting) = connection.application_context::<HandshakeState>() {
                greeting.alert.set(alert);
            }
            Error::application("no certificate for this server name".into())
        })?;
        tracing::debug!(name, files = ?site.files, "received a ClientHello");
        connection.set_config(site.config.clone())?;
        let route = self.routes.now().find(name.as_deref()).cloned();
        if let Some(route) = &route {
            connection.set_application_protocol_preference(route.offered())?;
        }
        if let Some(greeting) = connection.application_context::<HandshakeState>() {
            // A retried ClientHello must not change the choice that the handshake uses.
            let _ = greeting.chosen.set(SelectedSite { route, site: Arc::clone(site) });
        }
        if name.is_some() {
            connection.server_name_extension_used();
        }
        Ok(None)
    }
}
