//! Changes, as the store tells of them.

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

/// Changes that a reader may be behind before it is told that anything may have changed.
const BEHIND_MAX: usize = 1_024;
/// Bytes of one event.
const EVENT_MAX: usize = 64 << 10;
/// The store says something every fifteen seconds.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Before the stream is begun again: the first time, and doubled up to the most.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// A store that knows no such stream is retried after this.
const UNKNOWN_AGAIN: Duration = Duration::from_secs(600);
/// A stream that lasted so long was a good one.
const GOOD: Duration = Duration::from_secs(10);
/// After a gap clients ask again spread over this time.
const SPREAD: Duration = Duration::from_secs(2);

/// A change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// This name: set, made, deleted.
    Name(Name),
    /// Anything may have: the stream had a gap.
    Any,
}

/// A subscriber of changes.
#[derive(Debug)]
pub struct Changes(broadcast::Receiver<Change>);

impl Changes {
    /// The next change; never ends by itself while a clone of the client is there, and then waits for ever.
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

/// First the cache, then who listens: who asks then has the new value. What was in use is asked for `again` before
/// anybody asks: it is there even if the store falls next.
pub(crate) fn notify(cache: &Cache, changes: &Sender, name: Option<Name>, again: &impl Fn(Name)) {
    let Some(name) = name else { return doubt(cache, changes, None) };
    if cache.forget(name.clone()) {
        again(name.clone());
    }
    // Nobody may listen.
    let _ = changes.0.send(Change::Name(name));
}

/// The same of what may have changed: it is remembered for as long as nobody can be asked.
pub(crate) fn doubt(cache: &Cache, changes: &Sender, name: Option<Name>) {
    match &name {
        Some(name) => cache.doubt(name.clone()),
        None => cache.distrust(Duration::ZERO),
    }
    let _ = changes.0.send(name.map_or(Change::Any, Change::Name));
}

/// Follows until it is dropped.
pub(crate) async fn follow(
    transport: Arc<Transport>,
    cache: Arc<Cache>,
    changes: Sender,
    again: impl Fn(Name),
) {
    let mut following =
        Following { transport, cache, changes, again, last: None, begun_before: false, resumed: false };
    let mut pause = AGAIN;
    loop {
        let began = Instant::now();
        let ended = following.stream().await;
        following.cache.follow_no_more();
        if matches!(ended, Err(Error::Denied(_))) {
            // What this client was told before it is not told any more.
            following.cache.clear();
        }
        if began.elapsed() > GOOD {
            pause = AGAIN;
        }
        let wait = match &ended {
            Err(Error::Refused { status: 404, .. }) => UNKNOWN_AGAIN,
            _ => pause,
        };
        if let Err(error) = &ended {
            tracing::debug!(%error, "the stream of changes ended");
        }
        pause = (pause * 2).min(AGAIN_MAX);
        tokio::time::sleep(jitter(wait, 0.5)).await;
    }
}

struct Following<F> {
    transport: Arc<Transport>,
    cache: Arc<Cache>,
    changes: Sender,
    again: F,
    /// The id of the last event.
    last: Option<String>,
    begun_before: bool,
    /// Whether this stream goes on from where the one before ended.
    resumed: bool,
}

impl<F: Fn(Name)> Following<F> {
    /// One connection's worth.
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
            let silent = |_| Error::Unavailable("the stream of changes is silent".to_owned());
            let chunk = timeout(SILENCE_MAX, response.chunk()).await.map_err(silent)?;
            let broken = |_| Error::Unavailable("the stream of changes broke".to_owned());
            let Some(chunk) = chunk.map_err(broken)? else { return Ok(()) };
            for event in reader.read(&chunk)? {
                self.heard(event);
            }
        }
    }

    fn heard(&mut self, event: Event) {
        if !event.id.is_empty() {
            self.last = Some(event.id);
        }
        match event.kind.as_str() {
            READY => {
                self.resumed = serde_json::from_str::<Ready>(&event.data).is_ok_and(|ready| ready.resumed);
                if !self.resumed {
                    // At the first there is little to ask for again, and no other client lost its stream with this one.
                    self.gap(if self.begun_before { jitter(SPREAD, 1.0) } else { Duration::ZERO });
                }
                self.begun_before = true;
            }
            LAGGED => {
                self.gap(jitter(SPREAD, 1.0));
                if self.cache.is_followed() {
                    self.cache.follow_from_now(false);
                }
            }
            ACCESS => self.access(serde_json::from_str(&event.data).unwrap_or(Access { changed: true })),
            kind if kind.starts_with("credential.") => {
                // Whatever the kind of change is: the name is enough to ask again, and without one all is doubted.
                let change = serde_json::from_str::<CredentialName>(&event.data);
                let name = change.ok().and_then(|change| Name::parse(&change.name).ok());
                self.transport.counters.changes.add();
                notify(&self.cache, &self.changes, name, &self.again);
            }
            _ => {}
        }
    }

    /// The store tells of changes of access on this stream, and maybe of one.
    fn access(&self, access: Access) {
        if access.changed {
            self.transport.counters.changes.add();
            self.cache.clear();
            let _ = self.changes.0.send(Change::Any);
        }
        if !self.cache.is_followed() {
            self.cache.follow_from_now(self.resumed);
        }
    }

    fn gap(&self, after: Duration) {
        self.transport.counters.gaps.add();
        self.cache.distrust(after);
        let changes = self.changes.clone();
        tokio::spawn(async move {
            // Anyone who listens asks when the cache is to be asked no more.
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

/// Events out of bytes as they come.
#[derive(Default)]
struct Reader {
    rest: Vec<u8>,
    event: Event,
    octets: usize,
}

impl Reader {
    fn read(&mut self, octets: &[u8]) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        self.rest.extend_from_slice(octets);
        let rest = std::mem::take(&mut self.rest);
        let mut lines = rest.split(|octet| *octet == b'\n').peekable();
        while let Some(line) = lines.next() {
            if lines.peek().is_none() {
                // Not yet whole.
                self.rest = line.to_vec();
                break;
            }
            let line = String::from_utf8_lossy(line);
            let line = line.trim_end_matches('\r');
            self.octets += line.len();
            if line.is_empty() {
                self.octets = 0;
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
        if self.rest.len() + self.octets > EVENT_MAX {
            return Err(Error::Unavailable(format!("an event has more than {EVENT_MAX} octets")));
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
        fn events_are_the_same_however_they_are_cut(cuts in proptest::collection::vec(0..STREAM.len(), 0..12)) {
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
    fn an_event_without_an_end_is_refused() {
        let mut reader = Reader::default();
        let endless = (0..100).map(|_| reader.read(&[b'x'; 1_024])).find(Result::is_err);
        assert!(endless.is_some());
        let mut reader = Reader::default();
        let endless = (0..100).map(|_| reader.read(format!("data: {}\n", "x".repeat(1_000)).as_bytes()));
        assert!(endless.into_iter().any(|read| read.is_err()));
    }
}
