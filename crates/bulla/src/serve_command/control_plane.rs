//! Opens the components of a control plane on one database, and connects them with each other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::{Agents, AgentsParts};
use alerts::{AlertOptions, Alerts, Channels};
use audit::{AuditLog, AuditParts};
use authority::acme::{Acme, AcmeOptions};
use authority::enrolment::EnrolmentPassword;
use authority::est::{ClientCa, Est, EstOptions};
use authority::keystore::KeyStore;
use authority::publish::Publications;
use authority::scep::{Scep, ScepOptions};
use authority::{Authority, AuthorityOptions};
use cli::exit::{Exit, Outcome, Problem, chain};
use credentials::{CaVersions, Credentials, CredentialsOptions, HOOK_LIMIT, Hook, HookSender};
use ct::Monitor;
use enrollment::{AuthorityCertifier, TrustAnchors};
use futures_util::future::BoxFuture;
use inventory::history::History;
use inventory::ownership::Ownership;
use inventory::retention::Retention;
use inventory::watch::{WatchOptions, Watches};
use issuers::{HostPolicy, IssuerContext, Issuers, ReadableFiles, Responders};
use lifecycle::{Lifecycle, LifecycleOptions};
use outbound::guard::Guard;
use outbound::resolve::Resolver;
use server::access::{AccessControl, SessionOptions, TokenPasswords, uri_identity_key};
use server::listen::Running;
use server::routes::credhub::{CredHub, CredHubOptions, UaaOptions};
use server::{Components, Issuance, KeyNodes, KeyServices, ProxyRequests, State};
use signer::SignerClient;
use sites::policies::KeyPolicies;
use sites::{Sites, SitesParts};
use store::{Clock, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use x509::{Certificate, HostName};

use super::addresses::Addresses;
use super::certificate::ServerCertificate;
use super::client_crls::ClientCrls;
use super::estate::Estate;
use super::first_start;
use super::head_bucket;
use super::limits;
use super::login;
use super::metrics::Figures;
use super::roots::Roots;
use super::scan_environment::ServerScanEnvironment;
use super::transparency;
use super::watch::ChangeDetector;
use crate::config::{
    AuthoritySettings, Configuration, CredentialSettings, EstSettings, Role, ServerSettings, Settings,
};
use crate::files;
use crate::master_keys;
use crate::proxy::ProxyHandles;
use crate::roles::Roles;
use discover::database;

/// Interval of the maintenance of issuers: renews logins, and deletes expired orders and challenges.
const ISSUERS_EVERY: Duration = Duration::from_secs(60);

/// The control plane of this process: the handles of its components, and their background work.
pub(super) struct ControlPlane {
    pub(super) authority: Authority,
    anchors: TrustAnchors,
    pub(super) state: State,
    acme: Acme,
    issuers: Issuers,
    lifecycle: Lifecycle,
    pub(super) agents: Agents,
    pub(super) places: Sites,
    key_policies: KeyPolicies,
    alerts: Alerts,
    monitor: Monitor,
    watches: Watches,
    history: History,
    retention: Option<Retention>,
    estate: Estate,
    credentials: Credentials,
    pub(super) keystore: KeyStore,
    audit: AuditLog,
    pub(super) proxy: Option<ProxyHandles>,
}

/// Returns the key services whose load and traces the API shows.
fn key_services(settings: &Settings, roles: &Roles) -> Outcome<Option<Arc<dyn KeyServices>>> {
    let monitor = crate::keys::Monitor::open(&settings.keys, roles.has(Role::Keys))?;
    Ok(monitor.map(|monitor| -> Arc<dyn KeyServices> { Arc::new(monitor) }))
}

impl ControlPlane {
    pub(super) async fn open(
        configuration: &Configuration,
        roles: &Roles,
        addresses: &Addresses,
        store: &Store,
        clock: &Clock,
    ) -> Outcome<Self> {
        let settings = &configuration.settings;
        let resolver = Resolver::system()
            .map_err(|error| Problem::new(Exit::Machine, chain(&error)).hint("check /etc/resolv.conf"))?;
        let keystore = master_keys::keystore(settings, store, clock, &resolver, true).await?;
        keystore.register_sealed_column(&agent::tables::SEALED_TARGETS);
        keystore.register_sealed_column(&authority::tables::SEALED_CHANGES);
        // Values that proxies store in this database are sealed under the same master key.
        keystore.register_sealed_column(&proxy::tables::SEALED_LEAVES);
        keystore.register_sealed_column(&proxy::tables::SEALED_LEAF_KEYS);
        let authority = authority(settings, addresses, store, keystore.clone(), clock)?;
        let first = server::access::has_no_credentials(store).await;
        first_start::prepare(&authority, first.map_err(|error| database::problem(&error))?).await?;
        let anchors = TrustAnchors::from(first_start::root_pem(&authority).await?);
        let acme = acme(&settings.acme, addresses, &authority, store, clock)?;
        let access = AccessControl::with_teams(
            store.clone(),
            clock.clone(),
            SessionOptions::default(),
            authority.teams().clone(),
        );
        let passwords: Arc<dyn EnrolmentPassword> = Arc::new(TokenPasswords::new(access));
        let est = EstOptions {
            profiles: settings.est.profiles.clone(),
            default_profile: Some(settings.est.default_profile.clone()),
            require_channel_binding: settings.est.require_channel_binding,
            registrars: settings.est.registrars.clone(),
            client_cas: client_cas(&settings.est)?,
            ..EstOptions::default()
        };
        let scep = ScepOptions {
            profiles: settings.scep.profiles.clone(),
            default_profile: Some(settings.scep.default_profile.clone()),
            allow_sha1: settings.scep.allow_sha1,
        };
        let guard = settings.outbound.guard();
        let issuers = Issuers::new(IssuerContext {
            store: store.clone(),
            clock: clock.clone(),
            authority: authority.clone(),
            keystore: keystore.clone(),
            resolver: resolver.clone(),
            host: HostPolicy {
                programs: settings.programs()?,
                files: ReadableFiles::below(settings.files.readable_folders.clone()),
                guard,
            },
            responders: Responders::new(store.clone(), clock.clone()),
        });
        let lifecycle = Lifecycle::open(
            store.clone(),
            authority.clone(),
            issuers.clone(),
            keystore.clone(),
            clock.clone(),
            LifecycleOptions::default(),
        );
        let agents = Agents::new(AgentsParts {
            store: store.clone(),
            keystore: keystore.clone(),
            clock: clock.clone(),
            work: Arc::new(lifecycle.clone()),
            certify: Arc::new(AuthorityCertifier::agents(authority.clone())),
            identity: Arc::new(uri_identity_key),
            ca_pem: anchors.clone(),
        });
        let places = Sites::new(SitesParts {
            store: store.clone(),
            keystore: keystore.clone(),
            clock: clock.clone(),
            certify: Arc::new(AuthorityCertifier::nodes(authority.clone())),
            identity: Arc::new(uri_identity_key),
            ca_pem: anchors.clone(),
        });
        let key_policies = KeyPolicies::new(store.clone(), keystore.clone(), clock.clone());
        let alerts = Alerts::new(
            store.clone(),
            keystore.clone(),
            clock.clone(),
            Channels::new(resolver.clone()).guarded(guard),
            AlertOptions { server_url: Some(addresses.url()) },
        );
        let monitor = transparency::monitor(&settings.ct, &resolver, store, clock)?;
        let callouts = Guard { allow_link_local: false, ..guard };
        let posts = callout::Posts::new(resolver.clone(), callouts);
        let databases = callout::Databases::new(resolver.clone(), callouts);
        let mut options = settings.audit.options(&posts)?;
        options.witness.other = head_bucket::witness(&settings.audit.witness, clock).await?;
        let audit = AuditLog::new(AuditParts {
            store: store.clone(),
            keystore: keystore.clone(),
            clock: clock.clone(),
            options,
        });
        let kit = ServerScanEnvironment::open(settings, guard, resolver, store).await?;
        let revocation = kit.revocation_checker();
        let history = History::new(store.clone(), clock.clone(), kit.pools());
        let watches = Watches::new(
            store.clone(),
            clock.clone(),
            kit,
            WatchOptions {
                retry_timeout: Duration::from_secs(settings.store.patience_s),
                samples: Some(history.samples().clone()),
                ..WatchOptions::default()
            },
        );
        let credentials = credential_store(&settings.credentials, store, &keystore, clock)?;
        credentials.set_hook_sender(Arc::new(Hooks(posts)));
        credentials.set_databases(databases);
        credentials.set_publishing_authority(authority.clone());
        let credhub = CredHubOptions {
            url: Some(settings.credentials.url.trim_end_matches('/').to_owned())
                .filter(|url| !url.is_empty()),
            exact_name_like: settings.credentials.exact_name_like.clone(),
            uaa: uaa(&settings.credentials)?,
            application_cas: application_cas(&settings.credentials)?,
        };
        let proxy = roles.has(Role::Proxy).then(|| ProxyHandles::new(settings.server.console));
        let components = Components {
            issuance: Some(Issuance {
                authority: authority.clone(),
                publications: Publications::new(authority.clone()),
                acme: acme.clone(),
                est: Est::new(authority.clone(), Some(Arc::clone(&passwords)), est),
                scep: Scep::new(authority.clone(), Some(passwords), scep),
            }),
            certificates: Some(lifecycle.clone()),
            issuers: Some(issuers.clone()),
            agents: Some(agents.clone()),
            key_nodes: Some(KeyNodes { places: places.clone(), policies: key_policies.clone() }),
            key_services: key_services(settings, roles)?,
            proxy: proxy.clone().map(|proxy| -> Arc<dyn ProxyRequests> { Arc::new(proxy) }),
            keystore: Some(keystore.clone()),
            alerts: Some(alerts.clone()),
            transparency: Some(monitor.clone()),
            watches: Some(watches.clone()),
            ownership: Some(Ownership::new(store.clone(), clock.clone())),
            history: Some(history.clone()),
            credentials: Some(CredHub::new(credentials.clone(), credhub).map_err(|error| {
                Problem::usage(chain(&error)).hint("correct credentials.uaa_url: an https URL")
            })?),
            audit: Some(audit.clone()),
            limits: Some(limits::in_effect(configuration)),
            oidc: login::oidc(&settings.oidc, addresses)?,
        };
        let limits = settings.limits.options()?;
        let state = State::builder(store.clone(), clock.clone())
            .limits(limits)
            .signed_approvals(settings.server.signed_approvals)
            .components(components)
            .build();
        let figures = Figures {
            store: store.clone(),
            authority: authority.clone(),
            lifecycle: lifecycle.clone(),
            issuers: issuers.clone(),
            places: places.clone(),
            key_policies: key_policies.clone(),
            alerts: alerts.clone(),
            monitor: monitor.clone(),
            credentials: credentials.clone(),
            revocation,
        };
        state.metrics().register(|registry| registry.register_collector(Box::new(figures)));
        let days = settings.inventory.days();
        let retention = days.map(|days| Retention::new(store.clone(), clock.clone(), days));
        let estate = Estate::new(store.clone(), clock.clone(), history.clone());
        state.metrics().register(|registry| registry.register_collector(Box::new(estate.clone())));
        Ok(Self {
            authority,
            anchors,
            state,
            acme,
            issuers,
            lifecycle,
            agents,
            places,
            key_policies,
            alerts,
            monitor,
            watches,
            history,
            retention,
            estate,
            credentials,
            keystore,
            audit,
            proxy,
        })
    }

    /// Returns the roots of this server's CAs, and of other CAs that the configuration names.
    pub(super) fn roots(&self, settings: &ServerSettings) -> Roots {
        Roots::new(self.authority.clone(), self.anchors.clone(), settings.client_ca_files.clone())
    }

    /// Applies the CRLs that the configuration names, now and whenever the files change.
    pub(super) async fn client_crls(&self, settings: &ServerSettings) -> Outcome<(ClientCrls, Vec<Vec<u8>>)> {
        let crls = ClientCrls::new(self.authority.client_certificates(), settings.client_crl_files.clone());
        let ders = crls.load().await?;
        Ok((crls, ders))
    }

    /// Starts the background work, which ends with `stop`.
    pub(super) fn run(
        self,
        own: ServerCertificate,
        running: &Arc<Running>,
        (crls, counting): (ClientCrls, Vec<Vec<u8>>),
        stop: &CancellationToken,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(crls.keep(counting, stop.clone()));
        let ended = |stop: &CancellationToken| stop.clone().cancelled_owned();
        let (authority, until) = (self.authority, ended(stop));
        tasks.spawn(async move { authority.run(until).await });
        let (acme, until) = (self.acme, ended(stop));
        tasks.spawn(async move { acme.run(until).await });
        let (lifecycle, until) = (self.lifecycle, stop.clone());
        tasks.spawn(async move { lifecycle.run(until).await });
        let watched_agents = self.agents.clone();
        let (agents, until) = (self.agents, stop.clone());
        tasks.spawn(async move { agents.run(until).await });
        let (places, until) = (self.places, stop.clone());
        tasks.spawn(async move { places.run(until).await });
        let (key_policies, until) = (self.key_policies, stop.clone());
        tasks.spawn(async move { key_policies.run(until).await });
        let watch = ChangeDetector {
            store: self.state.store().clone(),
            clock: Clock::system(),
            agents: watched_agents,
            issuers: self.issuers.clone(),
            alerts: self.alerts.clone(),
            audit: self.audit.clone(),
        };
        tasks.spawn(watch.run(stop.clone()));
        tasks.spawn(maintain_issuers(self.issuers, stop.clone()));
        let (alerts, until) = (self.alerts, stop.clone());
        tasks.spawn(async move { alerts.run(until).await });
        let (monitor, until) = (self.monitor, stop.clone());
        tasks.spawn(async move { monitor.run(until).await });
        let (watches, until) = (self.watches, stop.clone());
        tasks.spawn(async move { watches.run(until).await });
        tasks.spawn(self.history.run(stop.clone()));
        if let Some(retention) = self.retention {
            tasks.spawn(retention.run(stop.clone()));
        }
        tasks.spawn(self.credentials.run(stop.clone()));
        tasks.spawn(self.audit.run(stop.clone()));
        tasks.spawn(master_keys::log_missing_master_keys(self.keystore));
        tasks.spawn(self.estate.run(stop.clone()));
        let (running, until) = (Arc::clone(running), stop.clone());
        tasks.spawn(async move { own.keep(until, |next| running.replace_certificate(next)).await });
        tasks
    }
}

/// Returns the external CAs whose client certificates EST accepts, each with the profiles that its clients may use.
fn client_cas(settings: &EstSettings) -> Outcome<Vec<ClientCa>> {
    const KEY: &str = "est.client_cas";
    let mut cas = Vec::new();
    for text in &settings.client_cas {
        let wrong = |what: &str| {
            Problem::usage(format_args!("{KEY}: {text:?} {what}")).hint(
                "write the file of a CA (PEM) and profiles, for example \"/etc/bulla/maker.pem=tablets,printers\"",
            )
        };
        let (path, profiles) = text.split_once('=').ok_or_else(|| wrong("names no profile"))?;
        let profiles: Vec<String> = profiles.split(',').map(|name| name.trim().to_owned()).collect();
        if let Some(name) = profiles.iter().find(|name| !settings.profiles.contains(name)) {
            return Err(wrong(&format!("names the profile {name:?}, which est.profiles does not contain")));
        }
        for der in files::certificates(KEY, Path::new(path))? {
            let ca = Certificate::parse(&der).ok().filter(Certificate::is_ca);
            let certificate =
                ca.ok_or_else(|| wrong("contains a certificate that is not a CA certificate"))?;
            cas.push(ClientCa { certificate, profiles: profiles.clone() });
        }
    }
    Ok(cas)
}

/// Returns the suffixes that are treated like public suffixes.
fn private_suffixes(texts: &[String]) -> Outcome<Vec<String>> {
    let read = |text: &String| {
        let name = HostName::parse(text).map_err(|error| {
            Problem::usage(format_args!("authority.private_suffixes: {text:?}: {error}"))
                .hint("write names without a leading star or dot, for example [\"corp\", \"k8s.internal\"]")
        })?;
        Ok(name.as_str().to_owned())
    };
    texts.iter().map(read).collect()
}

/// Returns the CAs whose client certificates identify applications.
fn application_cas(settings: &CredentialSettings) -> Outcome<Vec<Certificate>> {
    const KEY: &str = "credentials.app_ca_files";
    let mut cas = Vec::new();
    for path in &settings.app_ca_files {
        for der in files::certificates(KEY, path)? {
            let ca = Certificate::parse(&der).ok().filter(Certificate::is_ca);
            cas.push(ca.ok_or_else(|| {
                Problem::usage(format_args!(
                    "{} contains a certificate that is not a CA certificate",
                    path.display()
                ))
                .hint(format!("name files of CA certificates (PEM) in {KEY}"))
            })?);
        }
    }
    Ok(cas)
}

/// Returns the external issuer whose tokens the credential store accepts, if one is configured. Sends no request yet.
fn uaa(settings: &CredentialSettings) -> Outcome<Option<UaaOptions>> {
    if settings.uaa_url.is_empty() {
        return Ok(None);
    }
    let roots = match settings.uaa_ca_file.as_os_str().is_empty() {
        true => Vec::new(),
        false => files::certificates("credentials.uaa_ca_file", &settings.uaa_ca_file)?,
    };
    let uaa = UaaOptions::uaa(settings.uaa_url.clone(), roots, settings.uaa_audience.clone());
    let actor = settings.actor_rule()?;
    Ok(Some(UaaOptions { scopes: settings.uaa_scopes.clone(), actor, ..uaa }))
}

fn credential_store(
    settings: &CredentialSettings,
    store: &Store,
    keystore: &KeyStore,
    clock: &Clock,
) -> Outcome<Credentials> {
    let options = CredentialsOptions {
        ca_versions: if settings.concatenate_cas { CaVersions::All } else { CaVersions::Signer },
        any_key: settings.any_key,
        ca_minimum_days: settings.ca_minimum_days,
        leaf_minimum_days: settings.leaf_minimum_days,
        undelete_days: settings.undelete_days,
        retention: settings.retention()?,
        read_audit: settings.audit,
    };
    Ok(Credentials::open(store.clone(), keystore.clone(), clock.clone(), options))
}

/// Sends rotation hooks as signed webhooks.
struct Hooks(callout::Posts);

impl HookSender for Hooks {
    fn post<'a>(
        &'a self,
        hook: &'a Hook,
        revision: uuid::Uuid,
        body: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), String>> {
        let (url, secret, roots) = (&hook.url, &hook.secret, hook.roots.as_deref());
        let service = callout::Service { revision, url, secret, roots };
        Box::pin(self.0.post(service, body, HOOK_LIMIT))
    }
}

/// Maintains the issuers periodically until `stop`: renews logins, and deletes expired orders and challenges.
async fn maintain_issuers(issuers: Issuers, stop: CancellationToken) {
    let _live = telemetry::tasks::guard("issuers");
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(ISSUERS_EVERY) => {}
        }
        if let Err(error) = issuers.upkeep().await {
            tracing::warn!(%error, "cannot check the issuers");
        }
    }
}

pub(super) fn authority_options(
    settings: &AuthoritySettings,
    addresses: &Addresses,
) -> Outcome<AuthorityOptions> {
    let hours = |hours: u32| Duration::from_secs(u64::from(hours.max(1)) * 3_600);
    Ok(AuthorityOptions {
        base_url: addresses.public_url.clone(),
        crl_lifetime: hours(settings.crl_hours),
        crl_shards: settings.crl_shards,
        ocsp_lifetime: hours(settings.ocsp_hours),
        private_suffixes: private_suffixes(&settings.private_suffixes)?,
        ..AuthorityOptions::default()
    })
}

/// Opens the authority with the CA keys in this process, or in the signer that `signer.socket` names.
fn authority(
    settings: &Settings,
    addresses: &Addresses,
    store: &Store,
    keystore: KeyStore,
    clock: &Clock,
) -> Outcome<Authority> {
    let options = authority_options(&settings.authority, addresses)?;
    let opened = match settings.signer.is_apart() {
        true => {
            let signer = Arc::new(SignerClient::new(&settings.signer.socket));
            Authority::open_with_keys(store.clone(), keystore, signer, clock.clone(), options)
        }
        false => Authority::open(store.clone(), keystore, clock.clone(), options),
    };
    opened.map_err(|error| Problem::usage(chain(&error)).hint("correct server.public_url"))
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
