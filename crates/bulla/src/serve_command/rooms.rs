//! The rooms of the house, opened over one store and wired together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use authority::acme::{Acme, AcmeOptions};
use authority::est::{Est, EstOptions};
use authority::keystore::KeyStore;
use authority::publish::Publications;
use authority::scep::{Scep, ScepOptions};
use authority::{Authority, AuthorityOptions};
use keys::{Keyring, KeyringConfig, MasterKey};
use lifecycle::alerts::{AlertOptions, Alerts, Channels};
use outbound::resolve::Resolver;
use server::State;
use server::listen::Running;
use store::{Clock, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Addresses;
use super::certificate::Own;
use super::first_start::SERVER;
use crate::config::{AuthoritySettings, ServerSettings, Settings};
use crate::exit::{Exit, Outcome, Problem, chain};

/// The master key's file in the data folder.
const MASTER_KEY: &str = "master.key";

/// Handles of every room.
pub(super) struct Rooms {
    pub(super) authority: Authority,
    pub(super) state: State,
    acme: Acme,
    alerts: Alerts,
}

impl Rooms {
    pub(super) fn open(
        settings: &Settings,
        addresses: &Addresses,
        store: &Store,
        clock: &Clock,
    ) -> Outcome<Self> {
        let keystore = KeyStore::new(store.clone(), keyring(&settings.authority)?, clock.clone());
        let resolver = Resolver::system()
            .map_err(|error| Problem::new(Exit::Machine, chain(&error)).hint("check /etc/resolv.conf"))?;
        let authority = authority(&settings.authority, addresses, store, keystore.clone(), clock)?;
        let acme = acme(&settings.acme, addresses, &authority, store, clock)?;
        let offered = vec![SERVER.to_owned()];
        let est = EstOptions {
            profiles: offered.clone(),
            default_profile: Some(SERVER.to_owned()),
            ..EstOptions::default()
        };
        let scep =
            ScepOptions { profiles: offered, default_profile: Some(SERVER.to_owned()), allow_sha1: false };
        let alerts = Alerts::new(
            store.clone(),
            keystore,
            clock.clone(),
            Channels::new(resolver),
            AlertOptions { server_url: Some(addresses.url()) },
        );
        let state = State::builder(store.clone(), clock.clone())
            .with(authority.clone())
            .with(Publications::new(authority.clone()))
            .with(acme.clone())
            .with(Est::new(authority.clone(), None, est))
            .with(Scep::new(authority.clone(), None, scep))
            .with(alerts.clone())
            .build();
        Ok(Self { authority, state, acme, alerts })
    }

    /// Roots below which client certificates are accepted: our own, and those the configuration names.
    pub(super) async fn client_roots(&self, settings: &ServerSettings) -> Outcome<Vec<Vec<u8>>> {
        let own = self.authority.cas().await.map_err(|error| Problem::new(Exit::Inventory, chain(&error)))?;
        let mut roots: Vec<Vec<u8>> =
            own.iter().filter(|ca| ca.is_root()).map(|ca| ca.certificate.der.to_vec()).collect();
        for path in &settings.client_ca_files {
            let text = std::fs::read(path).map_err(|error| {
                Problem::usage(format_args!("cannot read {}: {error}", path.display()))
                    .hint("check server.client_ca_files")
            })?;
            roots.extend(x509::pem::certificates(&text).map(|(_, der)| der));
        }
        Ok(roots)
    }

    /// Starts the work that comes by itself; it ends with `stop`.
    pub(super) fn run(self, own: Own, running: &Arc<Running>, stop: &CancellationToken) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let ended = |stop: &CancellationToken| stop.clone().cancelled_owned();
        let (authority, until) = (self.authority, ended(stop));
        tasks.spawn(async move { authority.run(until).await });
        let (acme, until) = (self.acme, ended(stop));
        tasks.spawn(async move { acme.run(until).await });
        let (alerts, until) = (self.alerts, stop.clone());
        tasks.spawn(async move { alerts.run(until).await });
        let (running, until) = (Arc::clone(running), stop.clone());
        tasks.spawn(async move { own.keep(until, |next| running.replace_certificate(next)).await });
        tasks
    }
}

/// The master keys: those of the configuration, else one made in the data folder.
fn keyring(settings: &AuthoritySettings) -> Outcome<Keyring> {
    let given = settings.master_key_file.clone();
    let (path, create) = if given.as_os_str().is_empty() {
        (crate::data::folder()?.join(MASTER_KEY), true)
    } else {
        (given, false)
    };
    let older = |path: &PathBuf| MasterKey::File { path: path.clone(), create: false };
    let config = KeyringConfig {
        current: MasterKey::File { path, create },
        older: settings.old_master_key_files.iter().map(older).collect(),
    };
    Keyring::open(&config).map_err(|error| {
        Problem::new(Exit::Machine, chain(&error))
            .hint("check authority.master_key_file and the file's permissions; without the master key no kept key opens")
    })
}

fn authority(
    settings: &AuthoritySettings,
    addresses: &Addresses,
    store: &Store,
    keystore: KeyStore,
    clock: &Clock,
) -> Outcome<Authority> {
    let hours = |hours: u32| Duration::from_secs(u64::from(hours.max(1)) * 3_600);
    let options = AuthorityOptions {
        base_url: addresses.public_url.clone(),
        crl_lifetime: hours(settings.crl_hours),
        crl_shards: settings.crl_shards,
        ocsp_lifetime: hours(settings.ocsp_hours),
        ..AuthorityOptions::default()
    };
    Authority::open(store.clone(), keystore, clock.clone(), options)
        .map_err(|error| Problem::usage(chain(&error)).hint("correct server.public_url"))
}

fn acme(
    settings: &AcmeOptions,
    addresses: &Addresses,
    authority: &Authority,
    store: &Store,
    clock: &Clock,
) -> Outcome<Acme> {
    let options = AcmeOptions { base_url: addresses.url(), ..settings.clone() };
    Acme::new(authority.clone(), store.clone(), clock.clone(), options)
        .map_err(|error| Problem::usage(chain(&error)).hint("correct [acme] in the configuration"))
}
