//! The proxy of one run, in this process. It is configured by `[proxy]` and serves one client.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::exit::{Exit, Outcome, Problem};
use cli::memory;
use keyless::client::{Client, ClientMetrics};
use keys::Secret;
use proxy::mint::Authority;
use proxy::{AccessOptions, Options, ProxyMetrics, Running, Users};

use super::arguments::Login;
use super::environment::ProxyUrl;
use crate::config::{Configuration, ProxySettings};
use crate::data_folder;
use crate::files;
use crate::proxy::{self as role, StoreSecrets};

/// The timeout of the shutdown. The command has ended by then, so its connections need no more time.
const GRACE: Duration = Duration::from_secs(1);

/// The proxy of a run, loaded from the configuration but not listening yet.
pub(super) struct PreparedProxy {
    configuration: Configuration,
    settings: ProxySettings,
    authority: Authority,
    certificate: PathBuf,
    client: Option<Client>,
}

/// The proxy of this run while it serves the command.
pub(super) struct Serving {
    running: Running,
    client: Option<Client>,
}

impl PreparedProxy {
    pub(super) async fn load(configuration: &Configuration) -> Outcome<Self> {
        let mut all = configuration.settings.clone();
        // Use the defaults for settings about other clients and other listeners.
        let usual = ProxySettings::default();
        let of_run = &mut all.proxy;
        of_run.clients.clear();
        of_run.trusted_proxies.clear();
        of_run.metrics_listen.clear();
        of_run.transparent = usual.transparent;
        of_run.postgresql = usual.postgresql;
        of_run.redis = usual.redis;
        of_run.minting = usual.minting;
        // Identities of the policy name users of `access`, so this check needs them.
        of_run.check()?;
        of_run.access = usual.access;
        if !configuration.settings.server.core_dumps {
            memory::protect_self()?;
        }
        let loaded = role::authority::load(&all, &all.proxy, ClientMetrics::default()).await?;
        Ok(Self {
            configuration: configuration.clone(),
            settings: all.proxy,
            authority: loaded.authority,
            certificate: loaded.certificate,
            client: loaded.client,
        })
    }

    /// Returns the certificates of the proxy's CA, in DER.
    pub(super) fn root(&self) -> Outcome<Vec<Vec<u8>>> {
        files::certificates("proxy.ca_certificate_file", &self.certificate)
    }

    /// Serves clients of a network namespace, on a socket that was bound there.
    pub(super) async fn serve_confined(self, socket: OwnedFd, name: &str) -> Outcome<Serving> {
        let listen = inbound::reserve_socket(socket).map_err(|error| {
            Problem::new(Exit::Machine, format_args!("cannot use the namespace's socket: {error}"))
        })?;
        let access = AccessOptions { confined_user: Some(name.into()), ..AccessOptions::default() };
        Box::pin(self.serve(listen, access)).await.map(|(_, serving)| serving)
    }

    /// Serves clients on this machine that know the password in the URL.
    pub(super) async fn serve_with_password(self, name: &str) -> Outcome<(ProxyUrl, Serving)> {
        let password = uuid::Uuid::new_v4().simple().to_string();
        let mut salt = [0; 12];
        salt.copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[4..]);
        let users = Users::one(name, &password, salt)
            .map_err(|error| Problem::usage(format_args!("--as {name:?}: {error}")))?;
        let access = AccessOptions { users, ..AccessOptions::default() };
        let (address, serving) = Box::pin(self.serve((Ipv4Addr::LOCALHOST, 0).into(), access)).await?;
        let login = Login { name: name.to_owned(), password: Secret::new(&password) };
        Ok((ProxyUrl { address, login: Some(login) }, serving))
    }

    async fn serve(self, listen: SocketAddr, access: AccessOptions) -> Outcome<(SocketAddr, Serving)> {
        let metrics = ProxyMetrics::default();
        let mut all = self.configuration.settings.clone();
        all.proxy = self.settings.clone();
        let second_level = role::leaf_store::open(&all).await?;
        let upstream_roots = role::upstream_roots(&self.settings)?;
        let mut options =
            Options { listen, access, upstream_roots, second_level, ..self.settings.options()? };
        let secrets = StoreSecrets::default();
        options.requests.secrets = secrets.secrets_for_rules(&options.requests.rules, &self.configuration)?;
        options.requests.leases = Some(secrets.leases());
        // Rules are not reloaded, because the command may be able to write to the configuration file.
        let running = role::bind(options, self.authority, metrics).await?;
        Ok((running.address, Serving { running, client: self.client }))
    }
}

impl Serving {
    pub(super) async fn stop(self) {
        self.running.stop(GRACE).await;
        if let Some(client) = self.client {
            client.stop().await;
        }
    }
}

/// Returns the CA of a remote proxy.
pub(super) fn remote_proxy_roots(
    given: Option<&Path>,
    configuration: &Configuration,
) -> Outcome<Vec<Vec<u8>>> {
    if let Some(given) = given {
        return files::certificates("--ca", given);
    }
    let configured = &configuration.settings.proxy.ca_certificate_file;
    if !configured.as_os_str().is_empty() {
        return files::certificates("proxy.ca_certificate_file", configured);
    }
    let own_ca = data_folder::folder()?.join(role::authority::CERTIFICATE);
    if own_ca.exists() {
        return files::certificates("the proxy's CA", &own_ca);
    }
    Err(Problem::usage("the CA of the proxy at --proxy is unknown")
        .hint("give its certificate: --ca FILE; the proxy serves it at /ca.pem"))
}
