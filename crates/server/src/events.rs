//! The stream of events, from the outbox to its subscribers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use credentials::Asker;
use credentials::tables::{CredentialOperation as Operation, CredentialReaders};
use events::feed::CredentialNews;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{OutboxPlace, OutboxRow, Store, StoreError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use crate::problem::Problem;
use crate::time::shown;

/// Events that a follower may be behind before it is told that it lost some: at a kilobyte each, a megabyte for all
/// followers together.
const BEHIND_MAX: usize = 1_024;

/// Followers at once; each is a connection and a place in the channel.
const FOLLOWERS_MAX: usize = 2_048;

/// Maximum subscribers to credential changes: one for each client of the credential store.
const CREDENTIAL_FOLLOWERS_MAX: usize = 2_048;

/// Seconds after which to ask again when there are too many.
const FOLLOWERS_RETRY_SECONDS: u64 = 30;

/// Events read at a time.
const PAGE: i64 = 500;

/// Interval between reads of the outbox while there are subscribers.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// After an error of the database.
const PAUSE: Duration = Duration::from_secs(2);

/// An event as followers get it.
#[derive(Clone, Debug)]
pub(crate) struct FollowedEvent {
    pub(crate) place: OutboxPlace,
    pub(crate) kind: String,
    /// JSON.
    pub(crate) data: String,
    /// Of an event of a credential: what its readers are told.
    pub(crate) credential: Option<Arc<CredentialChange>>,
}

/// A change of a credential, without value and actor.
#[derive(Debug)]
pub(crate) struct CredentialChange {
    /// In lower case.
    name_key: String,
    /// JSON.
    pub(crate) data: String,
    /// Which subscribers may read the event.
    readers: Arc<CredentialReaders>,
}

impl FollowedEvent {
    /// Events, with those who may read the credentials that they tell of: one statement for all.
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
            // As it is, whatever it is: readers may know kinds and members that this version does not know.
            let body: Value = serde_json::from_str(&row.body).unwrap_or(Value::String(row.body));
            let data = json!({ "at": at, "subject": row.subject, "body": body }).to_string();
            Self { place: row.place, kind: row.kind, data, credential }
        };
        Ok(rows.into_iter().map(event).collect())
    }
}

/// The change that subscribers of credentials receive; failed rotations are none.
fn change_of(event: Option<events::Event>) -> Option<events::CredentialChange> {
    match event? {
        events::Event::CredentialChanged(change) | events::Event::CredentialDeleted(change) => Some(change),
        _ => None,
    }
}

impl CredentialChange {
    /// Whether this asker may read the credential; a statement of its own only for who came between.
    pub(crate) async fn may_read(&self, asker: &Asker, store: &Store) -> Result<bool, StoreError> {
        if asker.everything {
            return Ok(true);
        }
        if asker.is_bound() {
            return credentials::tables::Credentials::of(store)
                .may(asker, &self.name_key, Operation::Read)
                .await;
        }
        match self.readers.may(&asker.actor, &self.name_key) {
            Some(may) => Ok(may),
            None => {
                credentials::tables::Credentials::of(store).may(asker, &self.name_key, Operation::Read).await
            }
        }
    }
}

/// Fans events out. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<FollowedEvent>>,
    somebody: Arc<Notify>,
    /// Where the feed begins when it wakes up: nothing falls between the first follower and its first look.
    begin: Arc<Mutex<Option<OutboxPlace>>>,
    /// Permits of subscribers to all events.
    places: Arc<Semaphore>,
    /// Who follows the credentials, with how many followers, those who may read all among them.
    actors: Arc<Mutex<HashMap<String, usize>>>,
}

/// A follower's slot among those of its kind. Freed on drop.
enum FollowerSlot {
    OfAll { _permit: OwnedSemaphorePermit },
    OfCredentials(ActorSlot),
}

/// An actor's slot among those who follow the credentials. Freed on drop.
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

/// An item of the stream.
pub(crate) enum Followed {
    Event(Arc<FollowedEvent>),
    /// So many events were lost.
    Lagged(u64),
}

/// A subscriber.
pub(crate) struct Follower {
    store: Store,
    live: broadcast::Receiver<Arc<FollowedEvent>>,
    /// What happened before, still to be read: from here on.
    since: Option<OutboxPlace>,
    read: std::vec::IntoIter<FollowedEvent>,
    last: OutboxPlace,
    slot: FollowerSlot,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(BEHIND_MAX),
            somebody: Arc::default(),
            begin: Arc::default(),
            places: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
            actors: Arc::default(),
        }
    }
}

impl Events {
    /// Follows from now on, after what happened since `since`.
    pub(crate) async fn follow(&self, store: Store, since: Option<OutboxPlace>) -> Result<Follower, Problem> {
        let permit = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            Problem::unavailable("too many follow the events already", FOLLOWERS_RETRY_SECONDS)
        })?;
        Ok(self.begin(store, since, FollowerSlot::OfAll { _permit: permit }).await?)
    }

    /// As [`Self::follow`], of who wants to hear of credentials as this actor; `None` when too many follow already. What
    /// happened since `since` comes first where it is still kept: the second of the answer says whether it is.
    pub(crate) async fn follow_credentials(
        &self,
        store: Store,
        since: Option<OutboxPlace>,
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
        let kept = match since {
            Some(since) => store.outbox_has(since).await?,
            None => false,
        };
        let follower = self.begin(store, since.filter(|_| kept), FollowerSlot::OfCredentials(slot)).await?;
        Ok(Some((follower, kept)))
    }

    /// How many follow the credentials.
    pub(crate) fn credential_followers(&self) -> usize {
        self.actors.lock().values().sum()
    }

    async fn begin(
        &self,
        store: Store,
        since: Option<OutboxPlace>,
        slot: FollowerSlot,
    ) -> Result<Follower, StoreError> {
        let live = self.sender.subscribe();
        let end = store.outbox_seen().await?;
        {
            let mut begin = self.begin.lock();
            *begin = Some(begin.map_or(end, |earlier| earlier.min(end)));
        }
        self.somebody.notify_one();
        let last = since.unwrap_or(end);
        Ok(Follower { store, live, since: Some(last), read: Vec::new().into_iter(), last, slot })
    }

    /// Reads the outbox while there are subscribers, until `stop`.
    pub(crate) async fn feed(&self, store: Store, stop: CancellationToken) {
        let _task = telemetry::tasks::guard("event-feed");
        stop.run_until_cancelled(async {
            let mut place = None;
            loop {
                place = self.place_to_read(place);
                let Some(from) = place else {
                    self.somebody.notified().await;
                    continue;
                };
                match self.send_after(&store, from).await {
                    Ok((last, full)) => {
                        place = Some(last);
                        if !full {
                            tokio::time::sleep(LOOK_EVERY).await;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "events cannot be read; the feed goes on where it was");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        })
        .await;
    }

    /// The place after which the feed reads next: on from its own while somebody follows, else where the first follower begins.
    /// `None` while nobody has said where to begin.
    ///
    /// A follower subscribes before it looks for the end of the outbox, so a feed that runs has passed no place at which a later
    /// follower begins.
    fn place_to_read(&self, place: Option<OutboxPlace>) -> Option<OutboxPlace> {
        let mut begin = self.begin.lock();
        let begin = begin.take();
        // Anyone who set it while the lock was free is counted here, unless it has left.
        if self.sender.receiver_count() == 0 { None } else { place.or(begin) }
    }

    /// Sends the next events after `from`; answers the place of the last one, and whether there may be more at once.
    async fn send_after(&self, store: &Store, from: OutboxPlace) -> Result<(OutboxPlace, bool), StoreError> {
        let rows = store.outbox_after(from, PAGE).await?;
        let full = rows.len() as i64 == PAGE;
        let actors = self.actors.lock().keys().cloned().collect();
        let mut last = from;
        for event in FollowedEvent::of(rows, store, actors).await? {
            last = event.place;
            // That nobody is left is noticed before the next read.
            let _ = self.sender.send(Arc::new(event));
        }
        Ok((last, full))
    }
}

impl Follower {
    /// Position of the last event sent.
    pub(crate) fn place(&self) -> OutboxPlace {
        self.last
    }

    /// The next event; `None` when there are no more.
    pub(crate) async fn next(&mut self) -> Option<Followed> {
        loop {
            if let Some(event) = self.read.next() {
                self.last = event.place;
                return Some(Followed::Event(Arc::new(event)));
            }
            if let Some(since) = self.since {
                let rows = self.store.outbox_after(since, PAGE).await.ok()?;
                let next = rows.last().map(|row| row.place);
                let actors = match &self.slot {
                    FollowerSlot::OfAll { .. } => HashSet::new(),
                    FollowerSlot::OfCredentials(slot) => HashSet::from([slot.actor.clone()]),
                };
                self.read = FollowedEvent::of(rows, &self.store, actors).await.ok()?.into_iter();
                self.since = next;
                continue;
            }
            match self.live.recv().await {
                Ok(event) if event.place <= self.last => {}
                Ok(event) => {
                    self.last = event.place;
                    return Some(Followed::Event(event));
                }
                Err(broadcast::error::RecvError::Lagged(missed)) => return Some(Followed::Lagged(missed)),
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
    async fn followers_of_each_kind_are_counted_apart() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let events = Events::default();
        // Counted, and not yet in the channel: as it is while its place in the outbox is looked for.
        events.actors.lock().insert("uaa-client:a".to_owned(), 1);
        let mut all = Vec::new();
        for _ in 0..FOLLOWERS_MAX {
            all.push(events.follow(store.clone(), None).await.unwrap());
        }
        assert!(events.follow(store.clone(), None).await.is_err(), "one too many");
        let (of_credentials, _) =
            events.follow_credentials(store.clone(), None, "uaa-client:b").await.unwrap().unwrap();
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
    async fn the_feed_waits_for_a_follower_that_has_not_said_where_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let events = Events::default();
        let (stop, mut live) = (CancellationToken::new(), events.sender.subscribe());
        // It has seen an empty outbox, and has yet to say so.
        emit(&store, "/one").await;
        let feed = tokio::spawn({
            let (events, store, stop) = (events.clone(), store.clone(), stop.clone());
            async move { events.feed(store, stop).await }
        });
        tokio::task::yield_now().await;
        *events.begin.lock() = Some(OutboxPlace::default());
        events.somebody.notify_one();
        let event =
            tokio::time::timeout(Duration::from_secs(30), live.recv()).await.expect("it is told").unwrap();
        assert!(event.data.contains("/one"), "{event:?}");
        stop.cancel();
        feed.await.unwrap();
    }

    #[tokio::test]
    async fn followers_miss_nothing_while_the_outbox_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let (events, stop) = (Events::default(), CancellationToken::new());
        let mut follower = events.follow(store.clone(), None).await.unwrap();
        // What came before is read; from here on the follower depends on the feed.
        follower.since = None;
        store::testing::rename_table(&store, "outbox", "away").await.unwrap();
        let feed = tokio::spawn({
            let (events, store, stop) = (events.clone(), store.clone(), stop.clone());
            async move { events.feed(store, stop).await }
        });
        // The feed has taken its place and failed at it.
        while events.begin.lock().is_some() {
            tokio::task::yield_now().await;
        }
        store::testing::rename_table(&store, "away", "outbox").await.unwrap();
        emit(&store, "/meanwhile").await;
        let told = tokio::time::timeout(Duration::from_secs(30), follower.next()).await.expect("it is told");
        assert!(matches!(told, Some(Followed::Event(event)) if event.data.contains("meanwhile")));
        stop.cancel();
        feed.await.unwrap();
    }

    #[tokio::test]
    async fn a_place_of_followers_that_left_is_forgotten() {
        let events = Events::default();
        *events.begin.lock() = Some(OutboxPlace { transaction: 0, id: 1 });
        assert_eq!(events.place_to_read(Some(OutboxPlace::default())), None, "nobody follows");
        assert!(events.begin.lock().is_none());
        let _live = events.sender.subscribe();
        assert_eq!(events.place_to_read(None), None, "it has not said where it begins");
        let later = OutboxPlace { transaction: 0, id: 9 };
        *events.begin.lock() = Some(later);
        assert_eq!(events.place_to_read(None), Some(later));
    }
}
