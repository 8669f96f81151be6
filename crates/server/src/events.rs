//! Delivery of events from the outbox table to subscribers of the event stream.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use credentials::Requester;
use credentials::tables::{CredentialOperation as Operation, CredentialReaders};
use events::feed::CredentialNews;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{OutboxPosition, OutboxRow, Store, StoreError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use crate::problem::Problem;
use crate::time::shown;

/// Maximum events in the buffer of the channel. A subscriber that falls further behind loses events and is notified of the loss.
/// All subscribers share one buffer of about 1 MB: 1 kB per event.
const LAG_MAX: usize = 1_024;

/// Maximum subscribers to all events. Each has a connection and a receiver of the channel.
const FOLLOWERS_MAX: usize = 2_048;

/// Maximum subscribers to credential changes: one for each client of the credential store.
const CREDENTIAL_FOLLOWERS_MAX: usize = 2_048;

/// `Retry-After` in seconds when there are too many subscribers.
const FOLLOWERS_RETRY_SECONDS: u64 = 30;

/// Maximum events in one read.
const PAGE: i64 = 500;

/// Interval between reads of the outbox while there are subscribers.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Delay before the next read of the outbox after an error of the database.
const PAUSE: Duration = Duration::from_secs(2);

/// An event from the outbox, in the form in which subscribers receive it.
#[derive(Clone, Debug)]
pub(crate) struct FeedEvent {
    pub(crate) position: OutboxPosition,
    pub(crate) kind: String,
    /// The event, as JSON.
    pub(crate) data: String,
    /// For an event about a credential: the change as sent to callers that may read the credential.
    pub(crate) credential: Option<Arc<CredentialChange>>,
}

/// A change of a credential, without its value and its actor.
#[derive(Debug)]
pub(crate) struct CredentialChange {
    /// Name of the credential in lower case.
    name_key: String,
    /// The change, as JSON.
    pub(crate) data: String,
    /// Subscribers that may read the credential.
    readers: Arc<CredentialReaders>,
}

impl FeedEvent {
    /// Converts outbox rows to events. Reads the permissions on the credentials of all these events with one SQL statement.
    async fn of(
        rows: Vec<OutboxRow>,
        store: &Store,
        actors: HashSet<String>,
    ) -> Result<Vec<Self>, StoreError> {
        let rows: Vec<(OutboxRow, Option<events::CredentialChange>)> = rows
            .into_iter()
            .map(|row| {
                let change = change_of(store::read_event(&row));
                (row, change)
            })
            .collect();
        let names: Vec<String> =
            rows.iter().filter_map(|(_, change)| Some(change.as_ref()?.name.to_ascii_lowercase())).collect();
        let readers = Arc::new(credentials::tables::Credentials::of(store).readers(actors, &names).await?);
        let event = |(row, change): (OutboxRow, Option<events::CredentialChange>)| {
            let at = shown(row.at_us);
            let credential = change.map(|change| {
                let name_key = change.name.to_ascii_lowercase();
                let news = CredentialNews {
                    at: at.to_string(),
                    name: change.name,
                    kind: change.kind,
                    version: change.version,
                };
                Arc::new(CredentialChange {
                    name_key,
                    data: json!(news).to_string(),
                    readers: readers.clone(),
                })
            });
            // The body is passed on unchanged, because subscribers may know event types that this version does not.
            let body: Value = serde_json::from_str(&row.body).unwrap_or(Value::String(row.body));
            let data = json!({ "at": at, "subject": row.subject, "body": body }).to_string();
            Self { position: row.position, kind: row.kind, data, credential }
        };
        Ok(rows.into_iter().map(event).collect())
    }
}

/// Returns the credential change in an event, for subscribers to credential changes. `None` for other events, such as failed
/// rotations.
fn change_of(event: Option<events::Event>) -> Option<events::CredentialChange> {
    match event? {
        events::Event::CredentialChanged(change) | events::Event::CredentialDeleted(change) => Some(change),
        _ => None,
    }
}

impl CredentialChange {
    /// Returns whether this caller may read the credential. Queries the database only for a caller that subscribed after the event
    /// was converted, or that is limited to some names.
    pub(crate) async fn may_read(&self, requester: &Requester, store: &Store) -> Result<bool, StoreError> {
        if requester.full_access {
            return Ok(true);
        }
        if requester.is_restricted() {
            return credentials::tables::Credentials::of(store)
                .may(requester, &self.name_key, Operation::Read)
                .await;
        }
        match self.readers.may(&requester.actor, &self.name_key) {
            Some(may) => Ok(may),
            None => {
                credentials::tables::Credentials::of(store)
                    .may(requester, &self.name_key, Operation::Read)
                    .await
            }
        }
    }
}

/// Distributes events to subscribers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<FeedEvent>>,
    subscribed: Arc<Notify>,
    /// Outbox position from which an idle feed starts, so that the first subscriber misses no event.
    begin: Arc<Mutex<Option<OutboxPosition>>>,
    /// Semaphore that limits the subscribers to all events.
    slots: Arc<Semaphore>,
    /// Number of subscribers to credential changes, by actor.
    actors: Arc<Mutex<HashMap<String, usize>>>,
}

/// The slot of one subscriber, to all events or to credential changes. Freed on drop.
enum FollowerSlot {
    OfAll { _permit: OwnedSemaphorePermit },
    OfCredentials(ActorSlot),
}

/// An actor's slot in the limit of subscribers to credential changes. Freed on drop.
struct ActorSlot {
    actors: Arc<Mutex<HashMap<String, usize>>>,
    actor: String,
}

impl Drop for ActorSlot {
    fn drop(&mut self) {
        let mut actors = self.actors.lock();
        if let Some(count) = actors.get_mut(&self.actor) {
            *count -= 1;
            if *count == 0 {
                actors.remove(&self.actor);
            }
        }
    }
}

/// An item of a subscriber's event stream: an event, or the number of missed events.
pub(crate) enum FeedItem {
    Event(Arc<FeedEvent>),
    /// The subscriber missed this number of events.
    Lagged(u64),
}

/// A subscriber to events, with its slot.
pub(crate) struct Follower {
    store: Store,
    live: broadcast::Receiver<Arc<FeedEvent>>,
    /// Outbox position after which stored events are read next. `None` once all stored events were read: further events come from
    /// the feed.
    since: Option<OutboxPosition>,
    read: std::vec::IntoIter<FeedEvent>,
    last: OutboxPosition,
    slot: FollowerSlot,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(LAG_MAX),
            subscribed: Arc::default(),
            begin: Arc::default(),
            slots: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
            actors: Arc::default(),
        }
    }
}

impl Events {
    /// Subscribes to events. Delivers the stored events after `since` first.
    pub(crate) async fn follow(
        &self,
        store: Store,
        since: Option<OutboxPosition>,
    ) -> Result<Follower, Problem> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| {
            Problem::unavailable("the limit of event subscribers is reached", FOLLOWERS_RETRY_SECONDS)
        })?;
        Ok(self.begin(store, since, FollowerSlot::OfAll { _permit: permit }).await?)
    }

    /// Subscribes this actor to credential changes, like [`Self::follow`]. `None` when there are too many subscribers. The
    /// returned flag tells whether the outbox still has the position `since`.
    pub(crate) async fn subscribe_to_credentials(
        &self,
        store: Store,
        since: Option<OutboxPosition>,
        actor: &str,
    ) -> Result<Option<(Follower, bool)>, StoreError> {
        let slot = {
            let mut actors = self.actors.lock();
            if actors.values().sum::<usize>() >= CREDENTIAL_FOLLOWERS_MAX {
                return Ok(None);
            }
            *actors.entry(actor.to_owned()).or_default() += 1;
            ActorSlot { actors: Arc::clone(&self.actors), actor: actor.to_owned() }
        };
        let resumed = match since {
            Some(since) => store.outbox_contains(since).await?,
            None => false,
        };
        let follower =
            self.begin(store, since.filter(|_| resumed), FollowerSlot::OfCredentials(slot)).await?;
        Ok(Some((follower, resumed)))
    }

    /// Returns the number of subscribers to credential changes.
    pub(crate) fn credential_subscriber_count(&self) -> usize {
        self.actors.lock().values().sum()
    }

    async fn begin(
        &self,
        store: Store,
        since: Option<OutboxPosition>,
        slot: FollowerSlot,
    ) -> Result<Follower, StoreError> {
        let live = self.sender.subscribe();
        let end = store.outbox_stable_end().await?;
        {
            let mut begin = self.begin.lock();
            *begin = Some(begin.map_or(end, |earlier| earlier.min(end)));
        }
        self.subscribed.notify_one();
        let last = since.unwrap_or(end);
        Ok(Follower { store, live, since: Some(last), read: Vec::new().into_iter(), last, slot })
    }

    /// Reads the outbox while there are subscribers, until `stop`.
    pub(crate) async fn feed(&self, store: Store, stop: CancellationToken) {
        let _task = telemetry::tasks::guard("event-feed");
        stop.run_until_cancelled(async {
            let mut position = None;
            loop {
                position = self.next_read_position(position);
                let Some(from) = position else {
                    self.subscribed.notified().await;
                    continue;
                };
                match self.send_events_after(&store, from).await {
                    Ok((last, full)) => {
                        position = Some(last);
                        if !full {
                            tokio::time::sleep(POLL_INTERVAL).await;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "events cannot be read; the feed resumes from the same position");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        })
        .await;
    }

    /// Returns the position after which the feed reads next; `None` while there are no subscribers. Without a current position, the
    /// feed starts at the start position of the first subscriber.
    ///
    /// A subscriber subscribes before it reads the end of the outbox. A running feed therefore never passes the start position of a
    /// later subscriber.
    fn next_read_position(&self, position: Option<OutboxPosition>) -> Option<OutboxPosition> {
        let mut begin = self.begin.lock();
        let begin = begin.take();
        // The count includes every subscriber whose start position was taken above, unless it has disconnected.
        if self.sender.receiver_count() == 0 { None } else { position.or(begin) }
    }

    /// Sends the next events after `from`. Returns the position of the last one, and whether more may be available immediately.
    async fn send_events_after(
        &self,
        store: &Store,
        from: OutboxPosition,
    ) -> Result<(OutboxPosition, bool), StoreError> {
        let rows = store.outbox_after(from, PAGE).await?;
        let full = rows.len() as i64 == PAGE;
        let actors = self.actors.lock().keys().cloned().collect();
        let mut last = from;
        for event in FeedEvent::of(rows, store, actors).await? {
            last = event.position;
            // An error means that no subscriber is left, which the loop notices before the next read.
            let _ = self.sender.send(Arc::new(event));
        }
        Ok((last, full))
    }
}

impl Follower {
    /// Returns the outbox position of the last event that the subscriber received. Before the first event, returns the start
    /// position.
    pub(crate) fn position(&self) -> OutboxPosition {
        self.last
    }

    /// Returns the next event; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<FeedItem> {
        loop {
            if let Some(event) = self.read.next() {
                self.last = event.position;
                return Some(FeedItem::Event(Arc::new(event)));
            }
            if let Some(since) = self.since {
                let rows = self.store.outbox_after(since, PAGE).await.ok()?;
                let next = rows.last().map(|row| row.position);
                let actors = match &self.slot {
                    FollowerSlot::OfAll { .. } => HashSet::new(),
                    FollowerSlot::OfCredentials(slot) => HashSet::from([slot.actor.clone()]),
                };
                self.read = FeedEvent::of(rows, &self.store, actors).await.ok()?.into_iter();
                self.since = next;
                continue;
            }
            match self.live.recv().await {
                Ok(event) if event.position <= self.last => {}
                Ok(event) => {
                    self.last = event.position;
                    return Some(FeedItem::Event(event));
                }
                Err(broadcast::error::RecvError::Lagged(missed)) => return Some(FeedItem::Lagged(missed)),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::StoreUrl;

    #[tokio::test]
    async fn event_and_credential_subscribers_are_limited_separately() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let events = Events::default();
        // Simulates a subscriber that is counted, but has not yet subscribed to the channel.
        events.actors.lock().insert("uaa-client:a".to_owned(), 1);
        let mut all = Vec::new();
        for _ in 0..FOLLOWERS_MAX {
            all.push(events.follow(store.clone(), None).await.unwrap());
        }
        assert!(events.follow(store.clone(), None).await.is_err(), "one too many");
        let (of_credentials, _) =
            events.subscribe_to_credentials(store.clone(), None, "uaa-client:b").await.unwrap().unwrap();
        assert!(events.follow(store.clone(), None).await.is_err(), "it takes nobody's place, and gives none");
        all.pop();
        drop(of_credentials);
        assert!(events.follow(store, None).await.is_ok());
        assert!(!events.actors.lock().contains_key("uaa-client:b"));
    }

    async fn emit(store: &Store, name: &str) {
        let happened =
            events::Event::CredentialRotationRecovered(events::CredentialName { name: name.to_owned() });
        let event = store::new_event(1, format!("credential{name}"), &happened);
        store
            .write("test", move |tx| Box::pin(async move { store::emit(tx, vec![event]).await }))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn feed_waits_until_a_subscriber_sets_its_start_position() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let events = Events::default();
        let (stop, mut live) = (CancellationToken::new(), events.sender.subscribe());
        // The subscriber has read an empty outbox, but has not yet set its start position.
        emit(&store, "/one").await;
        let feed = tokio::spawn({
            let (events, store, stop) = (events.clone(), store.clone(), stop.clone());
            async move { events.feed(store, stop).await }
        });
        tokio::task::yield_now().await;
        *events.begin.lock() = Some(OutboxPosition::default());
        events.subscribed.notify_one();
        let event =
            tokio::time::timeout(Duration::from_secs(30), live.recv()).await.expect("it is told").unwrap();
        assert!(event.data.contains("/one"), "{event:?}");
        stop.cancel();
        feed.await.unwrap();
    }

    #[tokio::test]
    async fn subscribers_receive_events_after_a_failed_outbox_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let (events, stop) = (Events::default(), CancellationToken::new());
        let mut follower = events.follow(store.clone(), None).await.unwrap();
        // Skips the stored events: from here on the subscriber depends on the feed.
        follower.since = None;
        store::testing::rename_table(&store, "outbox", "away").await.unwrap();
        let feed = tokio::spawn({
            let (events, store, stop) = (events.clone(), store.clone(), stop.clone());
            async move { events.feed(store, stop).await }
        });
        // Waits until the feed has taken its start position and failed to read from it.
        while events.begin.lock().is_some() {
            tokio::task::yield_now().await;
        }
        store::testing::rename_table(&store, "away", "outbox").await.unwrap();
        emit(&store, "/meanwhile").await;
        let received =
            tokio::time::timeout(Duration::from_secs(30), follower.next()).await.expect("it is told");
        assert!(matches!(received, Some(FeedItem::Event(event)) if event.data.contains("meanwhile")));
        stop.cancel();
        feed.await.unwrap();
    }

    #[tokio::test]
    async fn start_position_is_cleared_when_no_subscriber_remains() {
        let events = Events::default();
        *events.begin.lock() = Some(OutboxPosition { transaction: 0, id: 1 });
        assert_eq!(events.next_read_position(Some(OutboxPosition::default())), None, "nobody follows");
        assert!(events.begin.lock().is_none());
        let _live = events.sender.subscribe();
        assert_eq!(events.next_read_position(None), None, "it has not said where it begins");
        let later = OutboxPosition { transaction: 0, id: 9 };
        *events.begin.lock() = Some(later);
        assert_eq!(events.next_read_position(None), Some(later));
    }
}
