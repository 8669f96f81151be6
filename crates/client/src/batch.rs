//! Batches cache misses: misses during a request are sent together in the next request.

use std::collections::VecDeque;
use std::sync::Arc;

use api::credhub::{CredentialView, LookupOutcome, LookupRequest, LookupView};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use keys::SecretJson;
use tokio::sync::{RwLock, RwLockReadGuard, Semaphore, mpsc, oneshot};

use crate::cache::{Cache, LookupResult};
use crate::transport::{StoreRequest, Transport};
use crate::{Credential, Error, Name};

/// Maximum names per request: half of the store's maximum, so that a response with long values is not too large.
pub const NAMES_MAX: usize = 500;

/// Maximum concurrent lookup requests per client.
const AT_ONCE: usize = 2;

/// Maximum queued lookups. Further callers wait for a slot in the queue.
const WAITING_MAX: usize = 4_096;

/// A queued lookup of several names. Its result is the first name that exists.
struct Lookup {
    names: Arc<[Name]>,
    reply: oneshot::Sender<Result<LookupResult, Error>>,
}

/// The sending side of the queue. The background task ends once the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Batches {
    queue: mpsc::Sender<Lookup>,
    /// Read lock while a caller queues lookups that belong together; write lock while the queue is drained into a batch.
    gate: Arc<RwLock<()>>,
}

impl Batches {
    /// Starts the background task. Needs a runtime.
    pub(crate) fn start(transport: Arc<Transport>, cache: Arc<Cache>) -> Self {
        let (sender, queue) = mpsc::channel(WAITING_MAX);
        let gate = Arc::default();
        tokio::spawn(run(queue, Arc::clone(&gate), transport, cache));
        Self { queue: sender, gate }
    }

    /// Returns a guard that pauses sending. Lookups queued while the guard exists are sent in one batch, if they fit. Do not hold
    /// the guard across other await points.
    pub(crate) async fn gather(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().await
    }

    /// Looks up the names in the store.
    pub(crate) async fn lookup(&self, names: Arc<[Name]>) -> Result<LookupResult, Error> {
        let stopped = || Error::Unavailable("this client has stopped".to_owned());
        let (reply, answer) = oneshot::channel();
        self.queue.send(Lookup { names, reply }).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

async fn run(
    mut queue: mpsc::Receiver<Lookup>,
    gate: Arc<RwLock<()>>,
    transport: Arc<Transport>,
    cache: Arc<Cache>,
) {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut waiting: VecDeque<Lookup> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            let Some(first) = queue.recv().await else { return };
            waiting.push_back(first);
        }
        // Lookups that arrive before a permit is free are added to this batch.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        tokio::task::yield_now().await;
        drop(gate.write().await);
        while waiting.len() < NAMES_MAX
            && let Ok(next) = queue.try_recv()
        {
            waiting.push_back(next);
        }
        let mut batch = Vec::new();
        let mut names = 0;
        while let Some(next) = waiting.front()
            && (batch.is_empty() || names + next.names.len() <= NAMES_MAX)
        {
            names += next.names.len();
            batch.extend(waiting.pop_front());
        }
        let (transport, cache) = (Arc::clone(&transport), Arc::clone(&cache));
        tokio::spawn(async move {
            let _permit = permit;
            send(batch, &transport, &cache).await;
            cache.remove_expired();
        });
    }
}

/// Sends a batch. If the store rejects the batch as a whole (one invalid name, values too large together), sends it in halves: then
/// only one caller gets the error. Other errors are returned to all callers, because halves would fail as well.
fn send<'a>(mut batch: Vec<Lookup>, transport: &'a Arc<Transport>, cache: &'a Cache) -> BoxFuture<'a, ()> {
    async move {
        let mark = cache.mark();
        let answers = match send_lookup(&batch, transport).await {
            Ok(answers) => answers,
            Err(Error::Refused { status: 400 | 413, .. }) if batch.len() > 1 => {
                let rest = batch.split_off(batch.len() / 2);
                send(batch, transport, cache).await;
                return send(rest, transport, cache).await;
            }
            Err(error) => {
                if matches!(error, Error::Denied(_)) {
                    // Values that this client received earlier must not be served any more.
                    cache.clear();
                }
                let error = match error {
                    // A 500 for one value would only affect that value. A 500 for the whole batch is a failure of the store.
                    Error::Refused { status: 500.., text } => Error::Unavailable(text),
                    error => error,
                };
                for lookup in batch {
                    // The caller may have stopped waiting.
                    let _ = lookup.reply.send(Err(error.clone()));
                }
                return;
            }
        };
        for (lookup, answer) in batch.into_iter().zip(answers) {
            if let Ok(answer) = &answer {
                derive_results(&lookup.names, answer, |name, answer| cache.put(name, answer, mark));
            }
            let _ = lookup.reply.send(answer);
        }
    }
    .boxed()
}

/// Derives the known results from a response: names before the found one do not exist; names after it are unknown.
fn derive_results(names: &[Name], answer: &LookupResult, mut put: impl FnMut(Name, LookupResult)) {
    let found = answer.as_ref().and_then(|credential| credential.key().ok());
    for name in names {
        if found.as_ref() == Some(name) {
            put(name.clone(), answer.clone());
            return;
        }
        put(name.clone(), None);
    }
}

async fn send_lookup(
    batch: &[Lookup],
    transport: &Arc<Transport>,
) -> Result<Vec<Result<LookupResult, Error>>, Error> {
    let lists: Vec<Vec<&str>> =
        batch.iter().map(|lookup| lookup.names.iter().map(Name::as_str).collect()).collect();
    let body = serde_json::to_string(&LookupRequest { lookups: lists })
        .map_err(|error| Error::invalid(format_args!("cannot encode the names: {error}")))?;
    let request = StoreRequest {
        method: Method::POST,
        path: "/api/v1/lookup".to_owned(),
        headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]),
        body: Some(body.into()),
        ..StoreRequest::default()
    };
    let answer = transport.request(&request).await?.checked()?;
    match serde_json::from_slice(&answer.body) {
        Ok(LookupView { results }) if results.len() == batch.len() => {
            Ok(results.into_iter().map(read).collect())
        }
        _ => Err(Error::Unavailable("its response to a lookup is not valid".to_owned())),
    }
}

/// Parses the result of one lookup.
fn read(outcome: Option<LookupOutcome<CredentialView<SecretJson>>>) -> Result<LookupResult, Error> {
    match outcome {
        None => Ok(None),
        Some(LookupOutcome::Failed { error }) => Err(Error::Refused { status: 500, text: error }),
        Some(LookupOutcome::Found(view)) => Ok(Some(Arc::new(Credential::of(view)?))),
    }
}
