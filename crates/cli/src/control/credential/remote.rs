//! A credential store that is read from: Bulla's own, or a live CredHub.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::super::input;
use super::record::{Grant, Record, RecordVersion};
use super::store::DATA;
use crate::api::Client;
use crate::exit::{Exit, Outcome, Problem};

/// Requests under way to one store. CredHub answers a thousand a second over so many connections.
pub(super) const IN_FLIGHT: usize = 16;

/// Credentials read by one request where the store takes lists.
pub(super) const PAGE: usize = 200;

/// How the store says that a token has ended.
const ENDED: &str = "access_token_expired";

/// Who is asked, and as whom.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) url: String,
    pub(super) name: String,
    pub(super) secret: SecretString,
    pub(super) ca_cert: Option<PathBuf>,
}

/// A store that is read from. Its connections are kept.
pub(super) struct Remote {
    client: Mutex<Arc<Client>>,
    login: Option<Login>,
    /// Whether it answers many names at once.
    lists: bool,
}

/// A credential that is there.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    signed_by: Option<String>,
    authority: bool,
}

/// What could not be read, and why.
pub(super) struct Failure {
    pub(super) name: String,
    pub(super) why: String,
}

impl Remote {
    /// A store of Bulla's.
    pub(super) fn own(client: &Arc<Client>) -> Self {
        Self { client: Mutex::new(Arc::clone(client)), login: None, lists: true }
    }

    /// Logs in with client credentials at the authorization server that the store names.
    pub(super) async fn log_in(login: Login) -> Outcome<Self> {
        let client = logged_in(&login).await?;
        let none = json!({ "lookups": [] });
        let lists = client.send(Method::POST, "/api/v1/lookup", Some(&none)).await.is_ok();
        Ok(Self { client: Mutex::new(Arc::new(client)), login: Some(login), lists })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Outcome<Value> {
        let client = Arc::clone(&*self.client.lock().await);
        let send = async |client: &Client| match method {
            Method::GET => client.get(path, query).await,
            _ => client.send(method.clone(), path, body).await,
        };
        match (send(&client).await, &self.login) {
            (Err(problem), Some(login)) if problem.message.starts_with(ENDED) => {
                let mut held = self.client.lock().await;
                // Of many that meet the end at once, one logs in.
                if Arc::ptr_eq(&held, &client) {
                    *held = Arc::new(logged_in(login).await?);
                }
                let client = Arc::clone(&held);
                drop(held);
                send(&client).await
            }
            (answer, _) => answer,
        }
    }

    async fn get(&self, path: &str, query: &[(&str, String)]) -> Outcome<Value> {
        self.ask(Method::GET, path, query, None).await
    }

    /// What lies below a path: authorities first, each after the one that signed it.
    pub(super) async fn entries(&self, path: &str) -> Outcome<Vec<Entry>> {
        let found = self.get(DATA, &[("path", path.to_owned())]).await?;
        let names = found.get("credentials").and_then(Value::as_array).cloned().unwrap_or_default();
        let certificates = self.get("/api/v1/certificates", &[]).await?;
        let certificates =
            certificates.get("certificates").and_then(Value::as_array).cloned().unwrap_or_default();
        let known: HashMap<String, (Option<String>, bool)> = certificates
            .iter()
            .filter_map(|one| {
                let name = one.get("name")?.as_str()?;
                let by = one.get("signed_by").and_then(Value::as_str).filter(|by| !by.is_empty());
                let by = by.filter(|by| !by.eq_ignore_ascii_case(name)).map(str::to_owned);
                let versions = one.get("versions").and_then(Value::as_array);
                let signs =
                    versions.is_some_and(|all| all.iter().any(|one| one["certificate_authority"] == true));
                Some((name.to_ascii_lowercase(), (by, signs)))
            })
            .collect();
        let depth = |name: &str| {
            let above =
                |name: &String| known.get(name).and_then(|(by, _)| Some(by.as_ref()?.to_ascii_lowercase()));
            std::iter::successors(Some(name.to_ascii_lowercase()), above).take(known.len() + 1).count()
        };
        let mut all: Vec<(usize, Entry)> = names
            .iter()
            .filter_map(|found| found.get("name").and_then(Value::as_str))
            .map(|name| {
                let (signed_by, authority) =
                    known.get(&name.to_ascii_lowercase()).cloned().unwrap_or_default();
                let depth = if authority { depth(name) } else { usize::MAX };
                (depth, Entry { name: name.to_owned(), signed_by, authority })
            })
            .collect();
        all.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| a.name.cmp(&b.name)));
        Ok(all.into_iter().map(|(_, entry)| entry).collect())
    }

    /// The credentials of some names, in their order.
    pub(super) async fn records(
        &self,
        entries: &[Entry],
        all_versions: bool,
    ) -> Outcome<Vec<Result<Record, Failure>>> {
        if self.lists && !all_versions {
            return self.listed(entries).await;
        }
        let single = entries.iter().map(|entry| async move {
            let which = if all_versions { None } else { Some(("current", "true".to_owned())) };
            let mut query = vec![("name", entry.name.clone())];
            query.extend(which);
            let answer = self.get(DATA, &query).await;
            answer
                .map_err(|problem| problem.message)
                .and_then(|answer| {
                    let all = answer.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
                    // Newest first, and of those that are current the one in transition last.
                    let some: Vec<&Value> =
                        if all_versions { all.iter().rev().collect() } else { all.iter().take(1).collect() };
                    entry.record(&some)
                })
                .map_err(|why| Failure { name: entry.name.clone(), why })
        });
        Ok(stream::iter(single).buffered(IN_FLIGHT).collect().await)
    }

    async fn listed(&self, entries: &[Entry]) -> Outcome<Vec<Result<Record, Failure>>> {
        let names: Vec<[&str; 1]> = entries.iter().map(|entry| [entry.name.as_str()]).collect();
        let body = json!({ "lookups": names });
        let answer = self.ask(Method::POST, "/api/v1/lookup", &[], Some(&body)).await?;
        let results = answer.get("results").and_then(Value::as_array).cloned().unwrap_or_default();
        let read = |(entry, answer): (&Entry, Value)| {
            let said = answer.get("error").and_then(Value::as_str).map(str::to_owned);
            let record = match said {
                Some(why) => Err(why),
                None => entry.record(&[&answer]),
            };
            record.map_err(|why| Failure { name: entry.name.clone(), why })
        };
        Ok(entries.iter().zip(results).map(read).collect())
    }

    /// The permissions for exactly these names and paths. A store that refuses to tell of one has none there for this
    /// caller; of those that it did not answer for it is not known.
    pub(super) async fn grants(&self, paths: &[String]) -> (Vec<Grant>, Vec<Failure>) {
        let single = paths.iter().map(|path| async move {
            let answer = self.get("/api/v1/permissions", &[("credential_name", path.clone())]).await;
            let all = match answer {
                Ok(answer) => answer.get("permissions").and_then(Value::as_array).cloned(),
                Err(problem) if problem.exit == Exit::Refused => None,
                Err(problem) => {
                    let name = format!("permissions for {path}");
                    return Err(Failure { name, why: problem.message });
                }
            };
            let grant = |one: &Value| {
                let operations = serde_json::from_value(one.get("operations")?.clone()).ok()?;
                Some(Grant { path: path.clone(), actor: one.get("actor")?.as_str()?.to_owned(), operations })
            };
            Ok(all.unwrap_or_default().iter().filter_map(grant).collect::<Vec<_>>())
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

/// Names, and every path above one of them: `/a/b`, `/a/*`, `/*`.
pub(super) fn paths_of(names: &[Entry]) -> Vec<String> {
    let mut all = std::collections::BTreeSet::from(["/*".to_owned()]);
    for entry in names {
        all.insert(entry.name.clone());
        let slashes = entry.name.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        all.extend(slashes.map(|at| format!("{}/*", &entry.name[..at])));
    }
    all.into_iter().collect()
}

impl Entry {
    /// Of its versions, oldest first.
    fn record(&self, versions: &[&Value]) -> Result<Record, String> {
        let kind = versions.first().and_then(|one| one.get("type")).and_then(Value::as_str);
        let kind = kind.ok_or("it is gone meanwhile, or may not be read")?;
        Ok(Record {
            name: self.name.clone(),
            kind: kind.to_owned(),
            signed_by: self.signed_by.clone(),
            authority: self.authority,
            versions: versions.iter().map(|one| RecordVersion::of(kind, one)).collect(),
        })
    }
}

async fn logged_in(login: &Login) -> Outcome<Client> {
    let nobody = Client::at(&login.url, None, login.ca_cert.as_deref())?;
    let info = nobody.get("/info", &[]).await?;
    let issuer = info.pointer("/auth-server/url").and_then(Value::as_str).ok_or_else(|| {
        Problem::new(Exit::Refused, format_args!("{} is no CredHub: /info names no auth-server", login.url))
            .hint("give the address of its API: https://HOST:8844")
    })?;
    let form = [
        ("grant_type", "client_credentials"),
        ("response_type", "token"),
        ("client_id", &login.name),
        ("client_secret", login.secret.expose_secret()),
    ];
    let answer = nobody.form(&format!("{}/oauth/token", issuer.trim_end_matches('/')), &form).await?;
    let token = answer.get("access_token").and_then(Value::as_str).ok_or_else(|| {
        Problem::new(Exit::Refused, format_args!("{issuer} gave no token")).hint("is it a UAA?")
    })?;
    Client::at(&login.url, Some(token.to_owned().into()), login.ca_cert.as_deref())
}

/// The query of a name.
pub(super) fn named(name: &str) -> String {
    format!("{DATA}?name={}", input::segment(name))
}
