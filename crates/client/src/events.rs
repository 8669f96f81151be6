//! The stream of changes of the store.

use std::sync::Arc;
use std::time::Duration;

use events::CredentialName;
use events::feed::{ACCESS, Access, LAGGED, READY, Ready};
use http::header::HeaderValue;
use http::{HeaderMap, Method};
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};

use crate::cache::Cache;
use crate::transport::{StoreRequest, Transport, jitter};
use crate::{Error, Name};

/// Maximum changes that a subscriber may be behind. Beyond that the subscriber is notified that anything may have changed.
const BEHIND_MAX: usize = 1_024;
/// Maximum bytes of one event.
const EVENT_MAX: usize = 64 << 10;
/// Timeout of a silent stream. The store sends data every fifteen seconds.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// First delay before the stream is opened again. Each further delay doubles, up to a maximum.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Maximum delay before the stream is opened again.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);
/// Delay before a retry if the store does not support the stream.
const UNSUPPORTED_RETRY_DELAY: Duration = Duration::from_secs(600);
/// Duration after which a stream counts as successful. The delays of retries then begin again with the first delay.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Time over which clients spread their requests after a gap in the stream.
const SPREAD: Duration = Duration::from_secs(2);

/// A change of credentials.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// The credential with this name was set, generated or deleted.
    Name(Name),
    /// Anything may have changed, because the stream had a gap.
    Any,
}

/// A subscriber of changes.
#[derive(Debug)]
pub struct Changes(broadcast::Receiver<Change>);

impl Changes {
    /// Returns the next change. Waits forever if there are no changes; while a clone of the client exists, the stream does not end.
    #[crate::boxed]
    pub async fn next(&mut self) -> Change {
        match self.0.recv().await {
            Ok(change) => change,
            Err(broadcast::error::RecvError::Lagged(_)) => Change::Any,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Sender(broadcast::Sender<Change>);

impl Sender {
    pub(crate) fn subscribe(&self) -> Changes {
        Changes(self.0.subscribe())
    }
}

pub(crate) fn channel() -> Sender {
    Sender(broadcast::Sender::new(BEHIND_MAX))
}

/// Updates the cache first, then notifies subscribers, so that they read the new value. Calls `reread` to read a value in use
/// immediately, so that it is cached even if the store fails next.
pub(crate) fn notify(cache: &Cache, changes: &Sender, name: Option<Name>, reread: &impl Fn(Name)) {
    let Some(name) = name else { return doubt(cache, changes, None) };
    if cache.forget(name.clone()) {
        reread(name.clone());
    }
    // There may be no subscribers.
    let _ = changes.0.send(Change::Name(name));
}

/// Marks a value that may have changed. It is still served while the store is unavailable.
pub(crate) fn doubt(cache: &Cache, changes: &Sender, name: Option<Name>) {
    match &name {
        Some(name) => cache.doubt(name.clone()),
        None => cache.invalidate_all_after(Duration::ZERO),
    }
    let _ = changes.0.send(name.map_or(Change::Any, Change::Name));
}

/// Follows the stream of changes until dropped.
pub(crate) async fn follow(
    transport: Arc<Transport>,
    cache: Arc<Cache>,
    changes: Sender,
    reread: impl Fn(Name),
) {
    let mut following =
        ChangeFollower { transport, cache, changes, reread, last: None, begun_before: false, resumed: false };
    let mut pause = RETRY_DELAY;
    loop {
        let began = Instant::now();
        let ended = following.stream().await;
        following.cache.end_following();
        if matches!(ended, Err(Error::Denied(_))) {
            // Values that this client received earlier must not be served any more.
            following.cache.clear();
        }
        if began.elapsed() > STABLE_AFTER {
            pause = RETRY_DELAY;
        }
        let wait = match &ended {
            Err(Error::Refused { status: 404, .. }) => UNSUPPORTED_RETRY_DELAY,
            _ => pause,
        };
        if let Err(error) = &ended {
            tracing::debug!(%error, "the stream of changes ended");
        }
        pause = (pause * 2).min(RETRY_DELAY_MAX);
        tokio::time::sleep(jitter(wait, 0.5)).await;
    }
}

struct ChangeFollower<F> {
    transport: Arc<Transport>,
    cache: Arc<Cache>,
    changes: Sender,
    reread: F,
    /// The id of the last event.
    last: Option<String>,
    begun_before: bool,
    /// Whether this stream continues where the previous one ended.
    resumed: bool,
}

impl<F: Fn(Name)> ChangeFollower<F> {
    /// Reads the stream on one connection.
    async fn stream(&mut self) -> Result<(), Error> {
        let mut headers = HeaderMap::new();
        if let Some(value) = self.last.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert("last-event-id", value);
        }
        let request = StoreRequest {
            method: Method::GET,
            path: "/api/v1/events".to_owned(),
            headers,
            ..StoreRequest::default()
        };
        let mut response = self.transport.open(&request).await?;
        let mut reader = Reader::default();
        loop {
            let silent =
                |_| Error::Unavailable("the stream of changes sent no data before the timeout".to_owned());
            let chunk = timeout(SILENCE_MAX, response.chunk()).await.map_err(silent)?;
            let broken = |_| Error::Unavailable("the stream of changes failed".to_owned());
            let Some(chunk) = chunk.map_err(broken)? else { return Ok(()) };
            for event in reader.read(&chunk)? {
                self.handle_event(event);
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        if !event.id.is_empty() {
            self.last = Some(event.id);
        }
        match event.kind.as_str() {
            READY => {
                self.resumed = serde_json::from_str::<Ready>(&event.data).is_ok_and(|ready| ready.resumed);
                if !self.resumed {
                    // At the first stream the cache is small, and no other client lost its stream at the same time. So no delay is
                    // needed.
                    self.gap(if self.begun_before { jitter(SPREAD, 1.0) } else { Duration::ZERO });
                }
                self.begun_before = true;
            }
            LAGGED => {
                self.gap(jitter(SPREAD, 1.0));
                if self.cache.is_followed() {
                    self.cache.begin_following(false);
                }
            }
            ACCESS => self.access(serde_json::from_str(&event.data).unwrap_or(Access { changed: true })),
            kind if kind.starts_with("credential.") => {
                // The kind of change does not matter. With a name only that entry is read again; without a name all entries are
                // doubtful.
                let change = serde_json::from_str::<CredentialName>(&event.data);
                let name = change.ok().and_then(|change| Name::parse(&change.name).ok());
                self.transport.counters.changes.add();
                notify(&self.cache, &self.changes, name, &self.reread);
            }
            _ => {}
        }
    }

    /// Handles an access event. The event shows that the store reports changes of access on this stream, and may itself report a
    /// change.
    fn access(&self, access: Access) {
        if access.changed {
            self.transport.counters.changes.add();
            self.cache.clear();
            let _ = self.changes.0.send(Change::Any);
        }
        if !self.cache.is_followed() {
            self.cache.begin_following(self.resumed);
        }
    }

    fn gap(&self, after: Duration) {
        self.transport.counters.gaps.add();
        self.cache.invalidate_all_after(after);
        let changes = self.changes.clone();
        tokio::spawn(async move {
            // Notify subscribers only after the cache distrusts its values.
            tokio::time::sleep(after).await;
            let _ = changes.0.send(Change::Any);
        });
    }
}

/// A server-sent event (WHATWG HTML section 9.2).
#[derive(Debug, Default, Eq, PartialEq)]
struct Event {
    id: String,
    kind: String,
    data: String,
}

/// A parser of events from a stream of bytes.
#[derive(Default)]
struct Reader {
    rest: Vec<u8>,
    event: Event,
    bytes: usize,
}

impl Reader {
    fn read(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let mut lines = rest.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            if lines.peek().is_none() {
                // The line is incomplete.
                self.rest = line.to_vec();
                break;
            }
            let line = String::from_utf8_lossy(line);
            let line = line.trim_end_matches('\r');
            self.bytes += line.len();
            if line.is_empty() {
                self.bytes = 0;
                let event = std::mem::take(&mut self.event);
                if event != Event::default() {
                    events.push(event);
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => self.event.id = value.to_owned(),
                "event" => self.event.kind = value.to_owned(),
                "data" => self.event.data.push_str(value),
                _ => {}
            }
        }
        if self.rest.len() + self.bytes > EVENT_MAX {
            return Err(Error::Unavailable(format!("an event has more than {EVENT_MAX} bytes")));
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str = "id: 0-1\nevent: ready\ndata: {\"resumed\":false}\n\n:\n\nevent: credential.changed\r\nid:0-2\r\n\
                          data: {\"name\":\"/a\"}\r\n\r\nevent: cut";

    proptest! {
        #[test]
        fn event_parsing_does_not_depend_on_chunk_boundaries(cuts in proptest::collection::vec(0..STREAM.len(), 0..12)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let mut reader = Reader::default();
            let mut events = Vec::new();
            for pair in cuts.windows(2) {
                events.extend(reader.read(&STREAM.as_bytes()[pair[0]..pair[1]]).unwrap());
            }
            let event = |id: &str, kind: &str, data: &str| Event {
                id: id.to_owned(), kind: kind.to_owned(), data: data.to_owned(),
            };
            prop_assert_eq!(events, vec![
                event("0-1", "ready", "{\"resumed\":false}"),
                event("0-2", "credential.changed", "{\"name\":\"/a\"}"),
            ]);
        }
    }

    #[test]
    fn event_without_an_end_is_rejected() {
        let mut reader = Reader::default();
        let endless = (0..100).map(|_| reader.read(&[b'x'; 1_024])).find(Result::is_err);
        assert!(endless.is_some());
        let mut reader = Reader::default();
        let endless = (0..100).map(|_| reader.read(format!("data: {}\n", "x".repeat(1_000)).as_bytes()));
        assert!(endless.into_iter().any(|read| read.is_err()));
    }
}
