//! Many sources listed side by side, each with an end of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outbound::Deadline;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use x509::Fingerprint;

use super::{CloudCertificate, CloudSource, Place, Sink, SourceError, State, Tags};

/// Events under way to the reader: a hundred certificates with their chains are some 400 KB, so 6 MB.
const EVENTS_IN_CHANNEL: usize = 16;

/// Longest that listing one source may take: an estate of a hundred thousand, at documented quotas, from an empty state.
pub const LIST_LIMIT: Duration = Duration::from_secs(4 * 3_600);

/// What a listing gives.
#[derive(Debug)]
pub enum Event {
    /// Certificates, some at a time.
    Certificates {
        /// The source's name.
        source: Arc<str>,
        /// At most a hundred.
        certificates: Vec<CloudCertificate>,
    },
    /// A source was listed, as far as it could be. Exactly one for each source, after all of its certificates, unless the
    /// listing was stopped.
    Ended(Box<Listed>),
}

/// How the listing of one source ended.
#[derive(Debug)]
pub struct Listed {
    /// The source's name.
    pub source: Arc<str>,
    /// What to start from next time. Keep it once the certificates before it are stored.
    pub state: State,
    /// Places that were listed last time and are not there any more.
    pub gone: Vec<Place>,
    /// Parts that could not be listed, and why. An empty part is the source itself.
    pub failed: Vec<(String, SourceError)>,
    /// What could not be read beside the certificates, and why, once each: the certificates are whole without it.
    pub remarks: Vec<(String, SourceError)>,
    /// Places whose tags, or whose certificate under them, are other than last time.
    pub tagged: Vec<Tagged>,
    /// Certificates listed.
    pub certificates: u64,
    /// Those of them that were read, because they are new or changed.
    pub read: u64,
}

/// The tags of a place, where something about them is new.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tagged {
    /// Which.
    pub place: Place,
    /// The certificate it keeps.
    pub leaf: Option<Fingerprint>,
    /// Its tags now.
    pub tags: Tags,
    /// Its tags before, where the same certificate had others there: whose it is may have been told already.
    pub before: Option<Tags>,
}

impl Listed {
    /// What could not be listed, for people.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.written(&self.failed)
    }

    /// What could not be read beside the certificates, for people.
    pub fn remarked(&self) -> impl Iterator<Item = String> {
        self.written(&self.remarks)
    }

    fn written<'a>(&'a self, parts: &'a [(String, SourceError)]) -> impl Iterator<Item = String> + 'a {
        parts.iter().map(|(part, error)| {
            let space = if part.is_empty() { "" } else { " " };
            format!("{}{space}{part}: {}", self.source, super::error::chain(error))
        })
    }
}

/// Lists `sources`, all at once, each for `limit` at most; `states` holds what each showed last time, by its name.
///
/// How much is asked at once and how often is the pools' to say, so a source that is slow, throttled or down holds up
/// nobody but itself. A full channel slows the listing; nothing is dropped.
///
/// # Cancellation
/// When `stop` is cancelled calls under way are dropped and the channel ends, without ends of the sources: their states
/// stay what they were.
#[must_use = "the channel is where the results come from"]
pub fn start(
    sources: Vec<Arc<dyn CloudSource>>,
    mut states: HashMap<String, State>,
    limit: Duration,
    stop: CancellationToken,
) -> mpsc::Receiver<Event> {
    let (out, events) = mpsc::channel(EVENTS_IN_CHANNEL);
    let guard = telemetry::tasks::guard("cloud-listing");
    tokio::spawn(async move {
        let _guard = guard;
        let deadline = Deadline::within(limit);
        let mut listings = JoinSet::new();
        let mut names = HashMap::new();
        for source in sources {
            let name = source.name().clone();
            let state = states.remove(&*name).unwrap_or_default();
            let listing = list(source, state, deadline, out.clone());
            names.insert(listings.spawn(listing).id(), name);
        }
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break listings.shutdown().await,
                ended = listings.join_next_with_id() => match ended {
                    Some(Ok((id, ()))) => drop(names.remove(&id)),
                    Some(Err(error)) => {
                        let Some(name) = names.remove(&error.id()) else { continue };
                        let broke_off = Err(SourceError::BrokeOff(error.to_string()));
                        // Without its state nothing is claimed of it.
                        Sink::new(name, State::default(), out.clone()).end(broke_off).await;
                    }
                    None => break,
                },
            }
        }
    });
    events
}

async fn list(source: Arc<dyn CloudSource>, since: State, deadline: Deadline, out: mpsc::Sender<Event>) {
    let _guard = telemetry::tasks::guard("cloud-source");
    let sink = Sink::new(source.name().clone(), since, out);
    let ended = deadline.bound(source.list(&sink, deadline)).await;
    sink.end(ended.unwrap_or(Err(SourceError::OutOfTime))).await;
}
