//! The scanner that runs the server's watches. It uses `[scan]` of the configuration, as `bulla scan` does.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use ::clouds::{CloudSettings, CloudSource, Pools};
use cli::exit::{Outcome, Problem, chain};
use discover::Detail;
use discover::ScanSettings;
use discover::scan_command::clouds;
use discover::scan_command::plan::Spec;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use inventory::sources::Observer;
use inventory::watch::{Clouds, ScanEnvironment, WatchOptions, WatchSpec};
use outbound::guard::Guard;
use outbound::resolve::Resolver;
use scan::revocation::{RevocationChecker, RevocationCounts};
use scan::{Observation, ScanOptions, Scanner, Targets};
use store::Store;
use tokio::sync::Mutex;

use crate::config::Settings;

/// Default for the concurrent probes of one watch. A server also needs descriptors for listeners and a database, and two watches
/// may run at the same time.
const IN_FLIGHT: usize = 512;

/// The scan environment of a control plane: settings, name resolution, revocation checker, cloud sources and target restrictions.
pub(crate) struct ServerScanEnvironment {
    settings: ScanSettings,
    resolver: Option<Resolver>,
    /// Shared by all watches and all their runs, so that cached CRLs are reused.
    revocation: SharedRevocationChecker,
    sources: Option<Sources>,
    /// Restricts targets, because API requests choose them.
    guard: Guard,
}

/// Clouds and clusters of the configuration. Pools and clients are created once, so that their state and connections outlast a run.
struct Sources {
    settings: CloudSettings,
    pools: Pools,
    created: Mutex<HashMap<Arc<str>, Arc<dyn CloudSource>>>,
}

impl Sources {
    async fn named(&self, wanted: &[String]) -> Result<Vec<Arc<dyn CloudSource>>, String> {
        let names = self.settings.named(wanted).map_err(|error| chain(&error))?;
        let mut created = self.created.lock().await;
        let missing: BTreeSet<Arc<str>> =
            names.iter().filter(|name| !created.contains_key(*name)).cloned().collect();
        let mut unavailable = Vec::new();
        if !missing.is_empty() {
            let (new, failed) =
                cloud_apis::sources::prepare_named(&self.settings, &missing, &self.pools).await;
            created.extend(new.into_iter().map(|source| (Arc::clone(source.name()), source)));
            unavailable = failed;
        }
        let available = names.iter().filter_map(|name| created.get(name).cloned());
        Ok(available
            .chain(unavailable.into_iter().map(|one| Arc::new(one) as Arc<dyn CloudSource>))
            .collect())
    }
}

/// The revocation checker of all scans, created at the first use.
#[derive(Clone, Default)]
pub(crate) struct SharedRevocationChecker(Arc<OnceLock<Option<RevocationChecker>>>);

impl SharedRevocationChecker {
    /// Returns the number of requests to sources of revocation status; zero before the checker exists.
    pub(crate) fn counts(&self) -> RevocationCounts {
        let scan_parameters = self.0.get().and_then(Option::as_ref);
        scan_parameters.map(RevocationChecker::counts).unwrap_or_default()
    }
}

impl ServerScanEnvironment {
    /// Opens the environment of the server's scans. Configured name servers take precedence over `resolver`, which the server uses
    /// itself.
    ///
    /// # Errors
    /// The file of clouds cannot be read, or its pools are too large for a limit: the common limit of all pools, the open files of
    /// this machine, or the connections of the database.
    pub(crate) async fn open(
        settings: &Settings,
        guard: Guard,
        resolver: Resolver,
        store: &Store,
    ) -> Outcome<Self> {
        let watch = &settings.watch;
        let mut settings = settings.scan.clone();
        if settings.in_flight == 0 {
            settings.in_flight = IN_FLIGHT.min(outbound::limits::descriptor_budget() / 4).max(1);
        }
        let mut sources = None;
        if !watch.clouds_file.as_os_str().is_empty() {
            let file = &watch.clouds_file;
            let mut clouds = clouds::read(file).map_err(|error| {
                Problem::usage(format_args!("watch.clouds_file {}: {error}", file.display()))
            })?;
            let at_once = WatchOptions::default().at_once;
            clouds.pools.raw = clouds.pools.raw.or(Some(settings.in_flight * at_once));
            let pools = clouds::pools(&clouds, Some(store)).await?;
            settings.in_flight = settings.in_flight.min(pools.raw() / at_once).max(1);
            sources = Some(Sources { settings: clouds, pools, created: Mutex::default() });
        }
        let resolver = settings.dns.is_empty().then_some(resolver);
        Ok(Self { resolver, revocation: SharedRevocationChecker::default(), sources, settings, guard })
    }

    /// Returns the pools of the configured clouds and clusters; `None` without any.
    pub(crate) fn pools(&self) -> Option<Pools> {
        self.sources.as_ref().map(|sources| sources.pools.clone())
    }

    /// Returns the revocation checker, for its metrics.
    pub(crate) fn revocation_checker(&self) -> SharedRevocationChecker {
        self.revocation.clone()
    }

    fn resolver(&self, spec: &Spec) -> Result<Resolver, String> {
        match &self.resolver {
            Some(resolver) => Ok(resolver.clone()),
            None => spec.resolver().map_err(message_of),
        }
    }

    fn revocation(&self, spec: &Spec, resolver: &Resolver) -> Result<Option<RevocationChecker>, String> {
        if let Some(created) = self.revocation.0.get() {
            return Ok(created.clone());
        }
        let guard = Guard { allow_link_local: false, ..self.guard };
        let created = spec.revocation(resolver, guard).map_err(message_of)?;
        Ok(self.revocation.0.get_or_init(|| created).clone())
    }

    fn spec(&self, watch: &WatchSpec) -> Spec {
        let mut settings = self.settings.clone();
        if let Some(ports) = &watch.ports {
            settings.ports.clone_from(ports);
        }
        settings.all_addresses |= watch.all_addresses;
        Spec {
            targets: watch.targets.clone(),
            sources: watch.sources.clone(),
            again: false,
            server_names: watch.server_names.clone(),
            starttls: watch.starttls.clone(),
            per_protocol: Vec::new(),
            password_file: None,
            settings,
        }
    }
}

fn message_of(problem: Problem) -> String {
    problem.message
}

impl ScanEnvironment for ServerScanEnvironment {
    fn targets(&self, watch: &WatchSpec) -> Result<Targets, String> {
        let options = self.spec(watch).target_options().map_err(message_of)?;
        Targets::of_network(&watch.targets, options).map_err(|error| chain(&error))
    }

    fn scanner(&self, watch: &WatchSpec) -> Result<Scanner, String> {
        let spec = self.spec(watch);
        let resolver = self.resolver(&spec)?;
        let trust = spec.trust().map_err(message_of)?;
        let revocation = self.revocation(&spec, &resolver)?;
        let guard = Some(self.guard);
        let options = ScanOptions { revocation, guard, ..spec.scan_options().map_err(message_of)? };
        Scanner::new(options, resolver, trust).map_err(|error| chain(&error))
    }

    fn check_sources(&self, watch: &WatchSpec) -> Result<(), String> {
        match &self.sources {
            _ if watch.sources.is_empty() => Ok(()),
            None => Err("this server has no clouds or clusters: set watch.clouds_file".to_owned()),
            Some(sources) => sources.settings.named(&watch.sources).map(drop).map_err(|error| chain(&error)),
        }
    }

    fn clouds<'a>(
        &'a self,
        watch: &'a WatchSpec,
        store: &'a Store,
    ) -> BoxFuture<'a, Result<Option<Clouds>, String>> {
        async move {
            self.check_sources(watch)?;
            let Some(sources) = self.sources.as_ref().filter(|_| !watch.sources.is_empty()) else {
                return Ok(None);
            };
            let spec = self.spec(watch);
            let revocation = self.revocation(&spec, &self.resolver(&spec)?)?;
            let options = ScanOptions { revocation, ..spec.scan_options().map_err(message_of)? };
            let observer = Observer::new(&options, spec.trust().map_err(message_of)?, Some(store.clone()));
            Ok(Some(Clouds { sources: sources.named(&watch.sources).await?, observer }))
        }
        .boxed()
    }

    fn scan_parameters(&self, watch: &WatchSpec) -> String {
        self.spec(watch).to_json()
    }

    fn detail(&self, observation: &Observation) -> String {
        serde_json::to_string(&Detail::of(observation)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings of a stored scan, as in the server's tests.
    const STORED: &str = include_str!("../../../server/tests/all/scan_spec.json");

    #[test]
    fn the_settings_of_a_watch_are_stored_with_its_scans() {
        let kit = ServerScanEnvironment {
            settings: ScanSettings { ca_files: vec!["/home/al/root.pem".into()], ..ScanSettings::default() },
            resolver: None,
            revocation: SharedRevocationChecker::default(),
            sources: None,
            guard: Guard::default(),
        };
        let watch = WatchSpec {
            targets: vec!["a.example".to_owned(), "@/home/al/hosts.txt".to_owned()],
            sources: vec!["aws-main".to_owned()],
            ports: Some("443,8443".to_owned()),
            server_names: vec!["b.example".to_owned()],
            starttls: Some("smtp".to_owned()),
            all_addresses: true,
        };
        let stored: serde_json::Value = serde_json::from_str(&kit.scan_parameters(&watch)).unwrap();
        assert_eq!(stored, serde_json::from_str::<serde_json::Value>(STORED).unwrap(), "{stored:#}");
    }
}
