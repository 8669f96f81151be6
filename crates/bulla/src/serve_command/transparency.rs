//! The Certificate Transparency monitor, with its settings from the configuration.

use std::path::Path;
use std::time::Duration;

use cli::exit::{Exit, Outcome, Problem, chain};
use ct::Monitor;
use ct::monitor::{LogLists, MonitorOptions};
use ct::search::{SearchOptions, SearchService};
use outbound::http::{Client, Options};
use outbound::rate::{Pace, Rate};
use outbound::resolve::Resolver;
use secrecy::ExposeSecret;
use store::{Clock, Store};

use crate::config::TransparencySettings;

/// Burst of requests to a service that allows more than a few per minute.
const BURST: u32 = 5;

pub(super) fn monitor(
    settings: &TransparencySettings,
    resolver: &Resolver,
    store: &Store,
    clock: &Clock,
) -> Outcome<Monitor> {
    let mut roots = None;
    for path in &settings.ca_files {
        roots.get_or_insert_with(Vec::new).extend(crate::files::certificates("ct.ca_files", path)?);
    }
    let client = Client::new(resolver, &Options { roots, ..Options::default() });
    let http = client.map_err(|error| {
        Problem::new(Exit::Machine, chain(&error)).hint("check ct.ca_files and the system's trusted roots")
    })?;
    let mut services = Vec::new();
    if !settings.certspotter_url.is_empty() {
        let token = token(&settings.certspotter_token_file)?;
        let usual = SearchOptions::cert_spotter(token);
        services.push(service(usual, &settings.certspotter_url, settings.certspotter_per_minute));
    }
    if !settings.crtsh_url.is_empty() {
        services.push(service(SearchOptions::crt_sh(), &settings.crtsh_url, settings.crtsh_per_minute));
    }
    let services = services
        .into_iter()
        .map(|options| SearchService::new(options, http.clone(), clock.clone()))
        .collect();
    let seconds = Duration::from_secs;
    let options = MonitorOptions {
        poll_every: seconds(settings.poll_s),
        grace: seconds(settings.grace_s),
        checkpoint_every: seconds(settings.checkpoint_s),
        behind_after: seconds(settings.behind_s),
        ..MonitorOptions::default()
    };
    let lists = LogLists {
        urls: settings.log_list_urls.clone(),
        files: settings.log_list_files.clone(),
        ..LogLists::default()
    };
    Ok(Monitor::new(store.clone(), clock.clone(), services, http, lists, options))
}

fn service(usual: SearchOptions, url: &str, per_minute: u32) -> SearchOptions {
    let rate = Rate::per_minute(per_minute).with_burst(BURST.min(per_minute));
    let pace = Pace { per_second: None, per_minute: Some(rate) };
    SearchOptions { url: url.to_owned(), pace, ..usual }
}

/// Returns the token that is sent with every request. It is read from a file, never from the configuration.
fn token(path: &Path) -> Outcome<Option<String>> {
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let token = crate::files::secret("ct.certspotter_token_file", path)?;
    Ok(Some(token.expose_secret().to_owned()))
}
