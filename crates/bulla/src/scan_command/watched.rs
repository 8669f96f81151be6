//! What the server's watches are scanned with: the configuration's `[scan]`, as for `bulla scan`.

use std::sync::OnceLock;

use outbound::resolve::Resolver;
use scan::revocation::RevocationChecker;
use scan::watch::{Kit, WatchSpec};
use scan::{Observation, ScanOptions, Scanner, Targets};

use super::plan::Spec;
use crate::config::ScanSettings;
use crate::exit::{Problem, chain};
use crate::output::record::Detail;

/// Looks of one watch at once where the configuration does not say: a server has listeners and a database to keep
/// descriptors for, and two watches may run.
const IN_FLIGHT: usize = 512;

/// The kit of a control plane.
pub(crate) struct ScanKit {
    settings: ScanSettings,
    resolver: Option<Resolver>,
    /// One for all watches and all their runs, so that a CRL is kept from one to the next.
    revocation: OnceLock<Option<RevocationChecker>>,
}

impl ScanKit {
    /// `resolver` is the server's own; name servers that the configuration names come before it.
    pub(crate) fn new(settings: &ScanSettings, resolver: Resolver) -> Self {
        let mut settings = settings.clone();
        if settings.in_flight == 0 {
            settings.in_flight = IN_FLIGHT.min(outbound::limits::descriptor_budget() / 4).max(1);
        }
        let resolver = settings.dns.is_empty().then_some(resolver);
        Self { resolver, revocation: OnceLock::new(), settings }
    }

    fn revocation(&self, spec: &Spec, resolver: &Resolver) -> Result<Option<RevocationChecker>, String> {
        if let Some(made) = self.revocation.get() {
            return Ok(made.clone());
        }
        let made = spec.revocation(resolver).map_err(said)?;
        Ok(self.revocation.get_or_init(|| made).clone())
    }

    fn spec(&self, watch: &WatchSpec) -> Spec {
        let mut settings = self.settings.clone();
        if let Some(ports) = &watch.ports {
            settings.ports.clone_from(ports);
        }
        settings.all_addresses |= watch.all_addresses;
        Spec {
            targets: watch.targets.clone(),
            again: false,
            server_names: watch.server_names.clone(),
            starttls: watch.starttls.clone(),
            per_protocol: Vec::new(),
            password_file: None,
            settings,
        }
    }
}

fn said(problem: Problem) -> String {
    problem.message
}

impl Kit for ScanKit {
    fn targets(&self, watch: &WatchSpec) -> Result<Targets, String> {
        let options = self.spec(watch).target_options().map_err(said)?;
        Targets::of_network(&watch.targets, options).map_err(|error| chain(&error))
    }

    fn scanner(&self, watch: &WatchSpec) -> Result<Scanner, String> {
        let spec = self.spec(watch);
        let resolver = match &self.resolver {
            Some(resolver) => resolver.clone(),
            None => spec.resolver().map_err(said)?,
        };
        let trust = spec.trust().map_err(said)?;
        let revocation = self.revocation(&spec, &resolver)?;
        let options = ScanOptions { revocation, ..spec.scan_options().map_err(said)? };
        Scanner::new(options, resolver, trust).map_err(|error| chain(&error))
    }

    fn asked(&self, watch: &WatchSpec) -> String {
        self.spec(watch).to_json()
    }

    fn detail(&self, observation: &Observation) -> String {
        serde_json::to_string(&Detail::of(observation)).unwrap_or_default()
    }
}
