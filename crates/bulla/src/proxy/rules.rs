//! Updates the proxy's rules from the configuration, and the credential store that they use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cli::connection::{Client, ServerArgs};
use cli::exit::{Exit, Outcome, Problem, chain};
use client::{Error, Limits};
use ipnet::IpNet;
use jiff::Timestamp;
use keys::Secret;
use proxy::leases::{Issuing, LeaseError, LeaseIssuer, NewLease};
use proxy::policy::Policy;
use proxy::requests::{Fetched, Fetching, RequestMetrics, RequestRules, SecretUnavailable, Secrets};
use proxy::{Rules, Running, Token, Users};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::arguments::ProxyArgs;
use crate::config::{Configuration, DatabaseListenerSettings, HookSettings, ProxySettings};
use crate::file_watch::{FileWatch, POLL_INTERVAL, stamp};

/// Timeout for fetching a credential, including all retries. The client's request waits during this time.
const CREDENTIAL_WITHIN: Duration = Duration::from_secs(10);

/// The credential store, accessed through crate `client`: one pool, one cache, and one request for concurrent lookups. It is
/// created when a rule first needs it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreSecrets(Arc<OnceLock<Arc<StoreClient>>>);

#[derive(Debug)]
struct StoreClient(client::Client);

impl StoreSecrets {
    /// Returns the store, if these rules use its credentials.
    pub(crate) fn secrets_for_rules(
        &self,
        rules: &RequestRules,
        configuration: &Configuration,
    ) -> Outcome<Option<Arc<dyn Secrets>>> {
        if !rules.need_store() {
            return Ok(None);
        }
        if let Some(store) = self.0.get() {
            return Ok(Some(Arc::<StoreClient>::clone(store)));
        }
        let credential_store =
            Client::open_credentials(&ServerArgs::default(), None, &configuration.settings.client)?;
        let limits = Limits { deadline: CREDENTIAL_WITHIN, ..Limits::default() };
        let client = credential_store.caching_client()?.limits(limits).build().map_err(|error| {
            Problem::usage(chain(&error))
                .hint("see client.credential_url, client.token_file and client.ca_file")
        })?;
        let store = self.0.get_or_init(|| Arc::new(StoreClient(client)));
        Ok(Some(Arc::<StoreClient>::clone(store)))
    }
}

impl StoreSecrets {
    /// Returns the interface through which the proxy creates and revokes leases.
    pub(crate) fn leases(&self) -> Arc<dyn LeaseIssuer> {
        Arc::new(self.clone())
    }

    fn client(&self) -> Result<&client::Client, LeaseError> {
        let none = || LeaseError::Refused("no credential store is configured".to_owned());
        self.0.get().map(|store| &store.0).ok_or_else(none)
    }
}

impl Secrets for StoreClient {
    fn fetch<'a>(&'a self, path: &'a str, fields: &'a [Vec<String>]) -> Fetching<'a> {
        Box::pin(async move {
            let credential = self.0.get(path).await.map_err(|error| match error {
                Error::Unavailable(why) => SecretUnavailable::StoreUnavailable(why),
                other => SecretUnavailable::Unusable(other.to_string()),
            })?;
            let text = |field: &Vec<String>| {
                let names: Vec<&str> = field.iter().map(String::as_str).collect();
                if names.is_empty() && !credential.value().is_string() {
                    let kind = credential.kind();
                    return Err(SecretUnavailable::Unusable(format!(
                        "{path} is of type {kind}: the rule must name a field"
                    )));
                }
                let missing = || SecretUnavailable::Unusable(format!("{path} has no {}", names.join(".")));
                credential.text(&names).ok_or_else(missing)
            };
            let values = fields.iter().map(text).collect::<Result<Vec<Secret>, _>>()?;
            Ok(Fetched { values, version: Some(credential.id().to_string()) })
        })
    }

    fn doubt(&self, path: &str) {
        if let Err(error) = self.0.doubt(path) {
            tracing::debug!(%error, "cannot mark a credential for an early refresh");
        }
    }
}

/// Creates and revokes leases in the store. Rules that need leases apply only once the client of the store exists.
impl LeaseIssuer for StoreSecrets {
    fn create<'a>(&'a self, role: &'a str) -> Issuing<'a, NewLease> {
        Box::pin(async move {
            let lease = self.client()?.create_lease(role).await.map_err(lease_error)?;
            let client::NewLease { id, username, password, created_at, expires_at } = lease;
            Ok(NewLease { id, username: Secret::new(username), password, created_at, expires_at })
        })
    }

    fn renew(&self, lease: Uuid) -> Issuing<'_, Timestamp> {
        Box::pin(async move { self.client()?.renew_lease(lease).await.map_err(lease_error) })
    }

    fn revoke(&self, lease: Uuid) -> Issuing<'_, ()> {
        Box::pin(async move { self.client()?.revoke_lease(lease).await.map_err(lease_error) })
    }
}

fn lease_error(error: Error) -> LeaseError {
    match error {
        Error::Unavailable(why) => LeaseError::StoreUnavailable(why),
        denied @ (Error::Denied(_) | Error::Refused { status: 401 | 403, .. }) => {
            LeaseError::Denied(denied.to_string())
        }
        other => LeaseError::Refused(other.to_string()),
    }
}

/// Settings that a reload does not change. If a reload could change them, a file without policy or users would open the proxy to
/// everyone.
#[derive(Clone, Debug)]
struct FixedSettings {
    /// Networks that the guard permits since startup; `None` without a policy.
    permitted_networks: Option<Vec<IpNet>>,
    /// Whether clients must authenticate.
    requires_authentication: bool,
    /// The hooks, whose connections are set up at startup.
    hooks: Vec<HookSettings>,
    /// The listeners for PostgreSQL clients.
    postgresql: Vec<DatabaseListenerSettings>,
    /// The listeners for Redis clients.
    redis: Vec<DatabaseListenerSettings>,
    /// Whether held requests can be approved, by the control socket or the API.
    can_approve: bool,
}

impl FixedSettings {
    fn of(settings: &ProxySettings, can_approve: bool) -> Self {
        Self {
            permitted_networks: settings.policy.permitted_networks(),
            requires_authentication: settings.access.requires_authentication(),
            hooks: settings.hooks.clone(),
            postgresql: settings.postgresql.clone(),
            redis: settings.redis.clone(),
            can_approve,
        }
    }

    fn check(&self, settings: &ProxySettings) -> Outcome<()> {
        let new = Self::of(settings, self.can_approve);
        if new.permitted_networks != self.permitted_networks {
            return Err(Problem::usage(
                "the policy was added or removed, or proxy.policy.allow_networks was changed",
            )
            .hint("restart the proxy: the networks that clients may connect to are set at startup"));
        }
        if new.hooks != self.hooks {
            return Err(Problem::usage("proxy.hooks was changed")
                .hint("restart the proxy: hooks are set up at startup"));
        }
        for (key, is_same) in [
            ("proxy.postgresql", new.postgresql == self.postgresql),
            ("proxy.redis", new.redis == self.redis),
        ] {
            if !is_same {
                return Err(Problem::usage(format_args!("{key} was changed"))
                    .hint("restart the proxy: listeners are opened at startup"));
            }
        }
        if !self.can_approve && settings.policy()?.holds() {
            return Err(Problem::usage(
                "a rule of proxy.policy has action = \"hold\", but its requests cannot be approved: the proxy has no control socket",
            )
            .hint("restart the proxy: the socket for approvals is opened at startup"));
        }
        if new.requires_authentication != self.requires_authentication {
            return Err(Problem::usage(
                "the first credential of proxy.access was added, or the last one removed",
            )
            .hint("restart the proxy: whether clients have to authenticate is set at startup"));
        }
        Ok(())
    }
}

/// The rules in the configuration file, which is watched for changes.
pub(crate) struct ConfiguredRules {
    file: Option<PathBuf>,
    watch: FileWatch,
    metrics: RequestMetrics,
    secrets: StoreSecrets,
    fixed: FixedSettings,
    hangup: Signal,
}

impl ConfiguredRules {
    pub(crate) fn new(
        configuration: &Configuration,
        metrics: RequestMetrics,
        secrets: StoreSecrets,
        can_approve: bool,
    ) -> Outcome<Self> {
        let failed = |error| Problem::new(Exit::Machine, format_args!("cannot handle signals: {error}"));
        let hangup = signal(SignalKind::hangup()).map_err(failed)?;
        let file = configuration.file().map(PathBuf::from);
        let watch = FileWatch::new(stamp(file.as_deref()));
        let fixed = FixedSettings::of(&configuration.settings.proxy, can_approve);
        Ok(Self { file, watch, metrics, secrets, fixed, hangup })
    }

    /// Applies changed rules of the file until `stop`; SIGHUP triggers an immediate check. An invalid file changes nothing.
    pub(crate) async fn keep(mut self, running: &Running, args: &ProxyArgs, stop: &CancellationToken) {
        let _live = telemetry::tasks::guard("proxy-rules");
        loop {
            let is_forced = tokio::select! {
                () = stop.cancelled() => return,
                _ = self.hangup.recv() => true,
                () = tokio::time::sleep(POLL_INTERVAL) => false,
            };
            if is_forced {
                running.reopen();
            }
            let before = stamp(self.file.as_deref());
            if !self.watch.is_ready_to_read(before) && !is_forced {
                continue;
            }
            let read = self.read(args).await;
            if !self.watch.confirm_read(before, stamp(self.file.as_deref())) {
                tracing::info!("the configuration file changed while it was read: reading it again");
                continue;
            }
            match read {
                Ok(LoadedRules { names, policy, rules, secrets, users, tokens }) => {
                    let count = rules.len() + policy.rules();
                    running.change_access(users, &tokens);
                    running.change_rules(names, policy, rules, secrets);
                    self.metrics.reloaded(true);
                    tracing::warn!(rules = count, "the proxy's rules were reloaded and apply from now on");
                }
                Err(problem) => {
                    self.metrics.reloaded(false);
                    tracing::warn!(
                        problem = problem.message,
                        hint = problem.hint,
                        "the proxy's rules are unchanged"
                    );
                }
            }
        }
    }

    /// Reads the file outside of the proxy's tasks, because reading files and compiling thousands of rules takes time.
    async fn read(&self, args: &ProxyArgs) -> Outcome<LoadedRules> {
        let (file, secrets, args) = (self.file.clone(), self.secrets.clone(), args.clone());
        let fixed = self.fixed.clone();
        let read = tokio::task::spawn_blocking(move || read(file.as_deref(), &secrets, &args, &fixed));
        read.await.map_err(|error| Problem::new(Exit::Machine, error))?
    }
}

/// The settings that a reload changes, and the credential store if the rules need it.
struct LoadedRules {
    names: Rules,
    policy: Policy,
    rules: RequestRules,
    secrets: Option<Arc<dyn Secrets>>,
    users: Users,
    tokens: Vec<Token>,
}

fn read(
    file: Option<&Path>,
    secrets: &StoreSecrets,
    args: &ProxyArgs,
    fixed: &FixedSettings,
) -> Outcome<LoadedRules> {
    let configuration = Configuration::load(file)?;
    let mut settings = configuration.settings.proxy.clone();
    settings.take(args);
    settings.check()?;
    fixed.check(&settings)?;
    let rules = settings.request_rules()?;
    let secrets = secrets.secrets_for_rules(&rules, &configuration)?;
    let (users, tokens) = settings.access.credentials()?;
    Ok(LoadedRules { names: settings.names()?, policy: settings.policy()?, rules, secrets, users, tokens })
}
