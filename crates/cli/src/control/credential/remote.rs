//! A credential store to read from: a Bulla store, or a live CredHub.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use api::credhub::{
    Certificates, CertificatesQuery, CredentialView, Data, DataQuery, FoundCredentials, InfoView,
    LookupOutcome, LookupRequest, LookupView, NameList, NamePermissions, PermissionEntry, PermissionsQuery,
    TokenRequest, TokenView,
};
use futures_util::stream::{self, StreamExt};
use keys::SecretJson;
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::record::{Grant, Record, RecordVersion};
use super::store::{CERTIFICATES, DATA, LOOKUP};
use crate::connection::{Client, read_as};
use crate::exit::{Exit, Outcome, Problem};

/// Maximum concurrent requests to one store. CredHub serves a thousand requests per second over this number of connections.
pub(super) const IN_FLIGHT: usize = 16;

/// Number of credentials read per request if the store supports lists.
pub(super) const PAGE: usize = 200;

/// The error code of an expired token.
const TOKEN_EXPIRED: &str = "access_token_expired";

/// The server and the credentials for a login.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) url: String,
    pub(super) name: String,
    pub(super) secret: SecretString,
    pub(super) ca_cert: Option<PathBuf>,
}

/// A store to read from. Its connections are reused.
pub(super) struct Remote {
    client: Mutex<Arc<Client>>,
    login: Option<Login>,
    /// Whether the store supports requests for many names.
    lists: bool,
}

/// A credential in the store: its name, its signer, and whether it is a CA.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    signed_by: Option<String>,
    authority: bool,
}

/// A credential that could not be read, and why.
pub(super) struct Failure {
    pub(super) name: String,
    pub(super) why: String,
}

impl Remote {
    /// Creates a store to read from: the Bulla store that `client` uses.
    pub(super) fn own(client: &Arc<Client>) -> Self {
        Self { client: Mutex::new(Arc::clone(client)), login: None, lists: true }
    }

    /// Logs in with client credentials at the authorization server that the store names.
    pub(super) async fn log_in(login: Login) -> Outcome<Self> {
        let client = authenticated_client(&login).await?;
        let none = LookupRequest::<NameList> { lookups: Vec::new() };
        let lists = client.submit(Method::POST, LOOKUP, &none).await.is_ok();
        Ok(Self { client: Mutex::new(Arc::new(client)), login: Some(login), lists })
    }

    /// Sends a request. If the token has expired, logs in and repeats it once.
    async fn with_login<T>(&self, send: impl AsyncFn(&Client) -> Outcome<T>) -> Outcome<T> {
        let client = Arc::clone(&*self.client.lock().await);
        match (send(&client).await, &self.login) {
            (Err(problem), Some(login)) if problem.message.starts_with(TOKEN_EXPIRED) => {
                let mut current = self.client.lock().await;
                // If several requests see the expiry at the same time, only one logs in.
                if Arc::ptr_eq(&current, &client) {
                    *current = Arc::new(authenticated_client(login).await?);
                }
                let client = Arc::clone(&current);
                drop(current);
                send(&client).await
            }
            (answer, _) => answer,
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Outcome<T> {
        self.with_login(async |client| client.fetch(path, query).await).await
    }

    /// Returns the credentials below a path: authorities first, each after its signer.
    pub(super) async fn entries(&self, path: &str) -> Outcome<Vec<Entry>> {
        let found: FoundCredentials = self.get(DATA, &DataQuery::below(path)).await?;
        let Certificates { certificates } = self.get(CERTIFICATES, &CertificatesQuery::default()).await?;
        let known: HashMap<String, (Option<String>, bool)> = certificates
            .into_iter()
            .map(|one| {
                let by = one.signed_by.filter(|by| !by.is_empty() && !by.eq_ignore_ascii_case(&one.name));
                let signs = one.versions.iter().any(|one| one.facts.certificate_authority == Some(true));
                (one.name.to_ascii_lowercase(), (by, signs))
            })
            .collect();
        let depth = |name: &str| {
            let above =
                |name: &String| known.get(name).and_then(|(by, _)| Some(by.as_ref()?.to_ascii_lowercase()));
            std::iter::successors(Some(name.to_ascii_lowercase()), above).take(known.len() + 1).count()
        };
        let mut all: Vec<(usize, Entry)> = found
            .credentials
            .into_iter()
            .map(|found| {
                let (signed_by, authority) =
                    known.get(&found.name.to_ascii_lowercase()).cloned().unwrap_or_default();
                let depth = if authority { depth(&found.name) } else { usize::MAX };
                (depth, Entry { name: found.name, signed_by, authority })
            })
            .collect();
        all.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| a.name.cmp(&b.name)));
        Ok(all.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Returns one record or failure per entry, in the order of `entries`.
    pub(super) async fn records(
        &self,
        entries: &[Entry],
        all_versions: bool,
    ) -> Outcome<Vec<Result<Record, Failure>>> {
        if self.lists && !all_versions {
            return self.listed(entries).await;
        }
        let single = entries.iter().map(|entry| async move {
            let query = match all_versions {
                true => DataQuery::versions(&entry.name, None),
                false => DataQuery::current(&entry.name),
            };
            let answer: Outcome<Data<CredentialView<SecretJson>>> = self.get(DATA, &query).await;
            answer
                .map_err(|problem| problem.message)
                .and_then(|Data { mut data }| {
                    // The response is newest first. Of two current versions, the transitional one is last.
                    match all_versions {
                        true => data.reverse(),
                        false => data.truncate(1),
                    }
                    entry.record(data)
                })
                .map_err(|why| Failure { name: entry.name.clone(), why })
        });
        Ok(stream::iter(single).buffered(IN_FLIGHT).collect().await)
    }

    async fn listed(&self, entries: &[Entry]) -> Outcome<Vec<Result<Record, Failure>>> {
        let request = lookup(entries.iter().map(|entry| entry.name.as_str()));
        let send = async |client: &Client| client.exchange(Method::POST, LOOKUP, &request).await;
        let answer: LookupView<CredentialView<SecretJson>> = self.with_login(send).await?;
        let read = |(entry, outcome): (&Entry, Option<LookupOutcome<_>>)| {
            let record = match outcome {
                Some(LookupOutcome::Failed { error }) => Err(error),
                Some(LookupOutcome::Found(credential)) => entry.record(vec![credential]),
                None => entry.record(Vec::new()),
            };
            record.map_err(|why| Failure { name: entry.name.clone(), why })
        };
        Ok(entries.iter().zip(answer.results).map(read).collect())
    }

    /// Returns the permissions for exactly these names and paths. A refusal means that there are none for this caller. Other errors are
    /// returned as failures.
    pub(super) async fn grants(&self, paths: &[String]) -> (Vec<Grant>, Vec<Failure>) {
        let single = paths.iter().map(|path| async move {
            let query =
                PermissionsQuery { credential_name: Some(path.clone()), ..PermissionsQuery::default() };
            let answer: Outcome<NamePermissions> = self.get("/api/v1/permissions", &query).await;
            let all = match answer {
                Ok(answer) => answer.permissions,
                Err(problem) if problem.exit == Exit::Refused => None,
                Err(problem) => {
                    let name = format!("permissions for {path}");
                    return Err(Failure { name, why: problem.message });
                }
            };
            let grant = |one: PermissionEntry| Grant {
                path: path.clone(),
                actor: one.actor,
                operations: one.operations,
            };
            Ok(all.unwrap_or_default().into_iter().map(grant).collect::<Vec<_>>())
        });
        let (mut grants, mut failed) = (Vec::new(), Vec::new());
        let mut answers = stream::iter(single).buffered(IN_FLIGHT);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(some) => grants.extend(some),
                Err(failure) => failed.push(failure),
            }
        }
        (grants, failed)
    }
}

/// Returns the names, and every path above a name: `/a/b`, `/a/*`, `/*`.
pub(super) fn names_and_ancestors(names: &[Entry]) -> Vec<String> {
    let mut all = std::collections::BTreeSet::from(["/*".to_owned()]);
    for entry in names {
        all.insert(entry.name.clone());
        let slashes = entry.name.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        all.extend(slashes.map(|at| format!("{}/*", &entry.name[..at])));
    }
    all.into_iter().collect()
}

impl Entry {
    /// Builds a record from the versions of this credential. `versions` must be in order, oldest first.
    fn record(&self, versions: Vec<CredentialView<SecretJson>>) -> Result<Record, String> {
        let kind = versions.first().map(|one| one.version.kind.clone());
        let kind = kind.ok_or("the credential was deleted in the meantime, or you may not read it")?;
        Ok(Record {
            name: self.name.clone(),
            signed_by: self.signed_by.clone(),
            authority: self.authority,
            versions: versions.into_iter().map(|one| RecordVersion::of(&kind, one)).collect(),
            kind,
        })
    }
}

async fn authenticated_client(login: &Login) -> Outcome<Client> {
    let anonymous = Client::at(&login.url, None, login.ca_cert.as_deref())?;
    let info: InfoView = read_as(&anonymous.get("/info", &()).await?).map_err(|_| {
        Problem::new(Exit::Refused, format_args!("{} is not a CredHub: /info has no auth-server", login.url))
            .hint("give the URL of its API: https://HOST:8844")
    })?;
    let issuer = info.auth_server.url;
    let form = TokenRequest {
        grant_type: Some("client_credentials".to_owned()),
        response_type: Some("token".to_owned()),
        client_id: Some(login.name.clone()),
        client_secret: Some(login.secret.expose_secret()),
        ..TokenRequest::default()
    };
    let answer = anonymous.form(&format!("{}/oauth/token", issuer.trim_end_matches('/')), &form).await?;
    let TokenView::<String> { access_token, .. } = read_as(&answer).map_err(|_| {
        Problem::new(Exit::Refused, format_args!("{issuer} did not issue a token"))
            .hint("check that the URL is a UAA")
    })?;
    Client::at(&login.url, Some(access_token.into()), login.ca_cert.as_deref())
}

/// Creates a lookup request in which each name is a separate lookup without alternatives.
pub(super) fn lookup<'a>(names: impl Iterator<Item = &'a str>) -> LookupRequest {
    LookupRequest { lookups: names.map(|name| NameList::One(name.to_owned())).collect() }
}
