//! What happens, from the outbox to whoever follows it here.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{OutboxPlace, OutboxRow, Store};
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;

use crate::problem::Problem;
use crate::time::shown;

/// Events that a follower may be behind before it is told that it lost some: at a kilobyte each, a megabyte for all
/// followers together.
const BEHIND_MAX: usize = 1_024;

/// Followers at once; each is a connection and a place in the channel.
const FOLLOWERS_MAX: usize = 512;

/// Seconds after which to ask again when there are too many.
const FOLLOWERS_RETRY_SECONDS: u64 = 30;

/// Events read at a time.
const PAGE: i64 = 500;

/// Between two looks into the outbox while somebody follows: soon enough for a person who watches.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// After an error of the database.
const PAUSE: Duration = Duration::from_secs(2);

/// An event as followers get it.
#[derive(Clone, Debug)]
pub(crate) struct Happened {
    pub(crate) place: OutboxPlace,
    pub(crate) kind: String,
    /// JSON.
    pub(crate) data: String,
}

impl Happened {
    fn of(row: OutboxRow) -> Self {
        let body: Value = serde_json::from_str(&row.body).unwrap_or(Value::Null);
        let data = json!({ "at": shown(row.at_us), "subject": row.subject, "body": body }).to_string();
        Self { place: row.place, kind: row.kind, data }
    }
}

/// Fans events out. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<Happened>>,
    somebody: Arc<Notify>,
    /// Where the feed begins when it wakes up: nothing falls between the first follower and its first look.
    begin: Arc<Mutex<Option<OutboxPlace>>>,
}

/// What a follower gets.
pub(crate) enum Followed {
    Event(Arc<Happened>),
    /// So many events were lost.
    Lagged(u64),
}

/// One who follows.
pub(crate) struct Follower {
    store: Store,
    live: broadcast::Receiver<Arc<Happened>>,
    /// What happened before, still to be read: from here on.
    since: Option<OutboxPlace>,
    read: std::vec::IntoIter<OutboxRow>,
    last: OutboxPlace,
}

impl Default for Events {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BEHIND_MAX), somebody: Arc::default(), begin: Arc::default() }
    }
}

impl Events {
    /// Follows from now on, after what happened since `since`.
    pub(crate) async fn follow(&self, store: Store, since: Option<OutboxPlace>) -> Result<Follower, Problem> {
        if self.sender.receiver_count() >= FOLLOWERS_MAX {
            return Err(Problem::unavailable("too many follow the events already", FOLLOWERS_RETRY_SECONDS));
        }
        let live = self.sender.subscribe();
        let end = store.outbox_end().await?;
        {
            let mut begin = self.begin.lock();
            *begin = Some(begin.map_or(end, |earlier| earlier.min(end)));
        }
        self.somebody.notify_one();
        let last = since.unwrap_or(end);
        Ok(Follower { store, live, since: Some(last), read: Vec::new().into_iter(), last })
    }

    /// Reads the outbox while somebody follows, until `stop`.
    pub(crate) async fn feed(&self, store: Store, stop: CancellationToken) {
        let _task = telemetry::tasks::guard("event-feed");
        stop.run_until_cancelled(async {
            loop {
                if self.sender.receiver_count() == 0 {
                    self.somebody.notified().await;
                    continue;
                }
                if let Err(error) = self.feed_followers(&store).await {
                    tracing::warn!(%error, "events cannot be read");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        })
        .await;
    }

    async fn feed_followers(&self, store: &Store) -> Result<(), store::StoreError> {
        let begin = self.begin.lock().take();
        let mut place = match begin {
            Some(place) => place,
            None => store.outbox_end().await?,
        };
        while self.sender.receiver_count() > 0 {
            let rows = store.outbox_after(place, PAGE).await?;
            let full = rows.len() as i64 == PAGE;
            for row in rows {
                place = row.place;
                // Nobody left is noticed above.
                let _ = self.sender.send(Arc::new(Happened::of(row)));
            }
            if !full {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

impl Follower {
    /// The next event; `None` when there are no more.
    pub(crate) async fn next(&mut self) -> Option<Followed> {
        loop {
            if let Some(row) = self.read.next() {
                self.last = row.place;
                return Some(Followed::Event(Arc::new(Happened::of(row))));
            }
            if let Some(since) = self.since {
                let rows = self.store.outbox_after(since, PAGE).await.ok()?;
                self.since = rows.last().map(|row| row.place);
                self.read = rows.into_iter();
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
