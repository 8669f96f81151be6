//! The proxy's rules kept as the configuration has them, and the credential store that they name.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use client::{Error, Limits};
use intercept::proxy::Running;
use intercept::proxy::requests::{Fetching, NoSecret, RequestMetrics, RequestRules, Secrets};
use keys::Secret;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::api::{Client, ServerArgs};
use crate::config::Configuration;
use crate::exit::{Exit, Outcome, Problem, chain};
use crate::proxy_command::ProxyArgs;

/// Between two looks at the configuration's file.
const LOOK: Duration = Duration::from_secs(1);
/// For a credential, all tries together: a request waits for it.
const CREDENTIAL_WITHIN: Duration = Duration::from_secs(10);

/// The credential store, by the house's client: one pool, one cache, one request for all who wait. Made when a rule first needs it.
#[derive(Debug, Default)]
pub(crate) struct StoreSecrets(OnceLock<Arc<OfStore>>);

#[derive(Debug)]
struct OfStore(client::Client);

impl StoreSecrets {
    /// The store, if these rules name credentials of it.
    pub(crate) fn needed_by(
        &self,
        rules: &RequestRules,
        configuration: &Configuration,
    ) -> Outcome<Option<Arc<dyn Secrets>>> {
        if !rules.need_store() {
            return Ok(None);
        }
        if let Some(store) = self.0.get() {
            return Ok(Some(Arc::<OfStore>::clone(store)));
        }
        let place = Client::open_credentials(&ServerArgs::default(), None, configuration)?;
        let limits = Limits { deadline: CREDENTIAL_WITHIN, ..Limits::default() };
        let client = place.remembering()?.limits(limits).build().map_err(|error| {
            Problem::usage(chain(&error))
                .hint("see client.credential_url, client.token_file and client.ca_file")
        })?;
        let store = self.0.get_or_init(|| Arc::new(OfStore(client)));
        Ok(Some(Arc::<OfStore>::clone(store)))
    }
}

impl Secrets for OfStore {
    fn fetch<'a>(&'a self, path: &'a str, fields: &'a [Vec<String>]) -> Fetching<'a> {
        Box::pin(async move {
            let credential = self.0.get(path).await.map_err(|error| match error {
                Error::Unavailable(why) => NoSecret::Away(why),
                other => NoSecret::Unusable(other.to_string()),
            })?;
            let text = |field: &Vec<String>| {
                let names: Vec<&str> = field.iter().map(String::as_str).collect();
                if names.is_empty() && !credential.value().is_string() {
                    let kind = credential.kind();
                    return Err(NoSecret::Unusable(format!(
                        "{path} is a {kind}: the rule has to name a field"
                    )));
                }
                let missing = || NoSecret::Unusable(format!("{path} has no {}", names.join(".")));
                credential.text(&names).ok_or_else(missing)
            };
            fields.iter().map(text).collect::<Result<Vec<Secret>, _>>()
        })
    }

    fn doubt(&self, path: &str) {
        if let Err(error) = self.0.doubt(path) {
            tracing::debug!(%error, "a credential cannot be doubted");
        }
    }
}

/// What a file looks like from outside: another look means another content.
type Look = Option<(SystemTime, u64, u64)>;

/// The rules as the configuration's file has them.
pub(crate) struct ConfiguredRules {
    file: Option<PathBuf>,
    seen: Look,
    metrics: RequestMetrics,
    secrets: StoreSecrets,
    hangup: Signal,
}

impl ConfiguredRules {
    pub(crate) fn new(
        configuration: &Configuration,
        metrics: RequestMetrics,
        secrets: StoreSecrets,
    ) -> Outcome<Self> {
        let failed = |error| Problem::new(Exit::Machine, format_args!("signals cannot be handled: {error}"));
        let hangup = signal(SignalKind::hangup()).map_err(failed)?;
        let file = configuration.file().map(PathBuf::from);
        let mut this = Self { file, seen: None, metrics, secrets, hangup };
        this.seen = this.look();
        Ok(this)
    }

    fn look(&self) -> Look {
        use std::os::unix::fs::MetadataExt;
        let about = std::fs::metadata(self.file.as_ref()?).ok()?;
        Some((about.modified().ok()?, about.len(), about.ino()))
    }

    /// Has rules count that are changed in the file, at once when told to look (SIGHUP), until told to stop. What cannot be used
    /// changes nothing.
    pub(crate) async fn keep(mut self, running: &Running, args: &ProxyArgs, stop: &CancellationToken) {
        let _live = telemetry::tasks::guard("proxy-rules");
        loop {
            let told = tokio::select! {
                () = stop.cancelled() => return,
                _ = self.hangup.recv() => true,
                () = tokio::time::sleep(LOOK) => false,
            };
            if told {
                running.reopen();
            }
            let look = self.look();
            if !told && look == self.seen {
                continue;
            }
            self.seen = look;
            match self.read(running, args) {
                Ok(count) => {
                    self.metrics.reloaded(true);
                    tracing::warn!(rules = count, "the proxy's rules were read again and count from now on");
                }
                Err(problem) => {
                    self.metrics.reloaded(false);
                    tracing::warn!(
                        problem = problem.message,
                        hint = problem.hint,
                        "the proxy's rules stay as they were"
                    );
                }
            }
        }
    }

    fn read(&self, running: &Running, args: &ProxyArgs) -> Outcome<usize> {
        let configuration = Configuration::load(self.file.as_deref())?;
        let mut settings = configuration.settings.proxy.clone();
        settings.take(args);
        settings.check()?;
        let rules = settings.request_rules()?;
        let secrets = self.secrets.needed_by(&rules, &configuration)?;
        let count = rules.len();
        running.change_rules(settings.names()?, rules, secrets);
        Ok(count)
    }
}
