//! Follows logs: selects them from the lists, assigns each to a node, and stores the results of its steps.

use std::collections::HashMap;
use std::time::Duration;

use events::{CtLogAlarm, CtLogConsistent, CtLogInconsistent, CtLogRecovered, Event};
use futures_util::FutureExt;
use http::StatusCode;
use outbound::Deadline;
use outbound::http::Reply;
use store::{NewEvent, StoreError, emit, new_event};
use telemetry::chain;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Monitor, Watched, in_us, log_subject};
use crate::LIST_SIGNATURE_BYTES_MAX;
use crate::follow::{Alarm, FollowError, FollowOptions, Follower, LogPosition, Step};
use crate::ledger::{ReportedIssuance, record};
use crate::log_list::{LIST_BYTES_MAX, LogList, TiledLog};
use crate::merkle::Hash;
use crate::tables;
use crate::tables::{CtLogRow, CtLogStep, alarm_ct_log, fail_ct_log, step_ct_log};

/// Maximum followed logs; the CT programs have a few dozen active logs at a time.
const FOLLOWED_MAX: usize = 256;
/// Interval between updates of the lists: the CT programs change them a few times a month.
const LISTS_EVERY: Duration = Duration::from_secs(86_400);
/// Delay after a failed update.
const LISTS_RETRY: Duration = Duration::from_secs(600);
/// Timeout for one list.
const LIST_LIMIT: Duration = Duration::from_secs(60);
/// Duration of a node's lease on a log.
const LEASE: Duration = Duration::from_secs(60);
/// Interval of lease renewals during a step: 64 tiles over a slow connection take minutes.
const RENEW_EVERY: Duration = Duration::from_secs(20);
/// Timeout of the last database request during shutdown.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

impl Monitor {
    /// Follows the logs on the lists until `stop`.
    pub(super) async fn follow(&self, stop: &CancellationToken) {
        if self.0.lists.is_empty() {
            return;
        }
        let node = Uuid::now_v7();
        let mut tasks = JoinSet::new();
        let mut followed: HashMap<Hash, CancellationToken> = HashMap::new();
        loop {
            let lists = tokio::select! {
                () = stop.cancelled() => break,
                lists = self.lists() => lists,
            };
            let delay = match lists {
                Ok(list) => {
                    self.update_followed_logs(list, node, stop, &mut tasks, &mut followed);
                    LISTS_EVERY
                }
                Err(error) => {
                    tracing::warn!(error, "the CT log list could not be read");
                    LISTS_RETRY
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(delay) => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Fetches and merges all lists. Fails if any list cannot be read: a temporary failure must not remove logs.
    async fn lists(&self) -> Result<LogList, String> {
        let mut lists = Vec::new();
        for path in &self.0.lists.files {
            let text = tokio::fs::read(path).await.map_err(|error| format!("{}: {error}", path.display()))?;
            lists.push(LogList::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?);
        }
        for url in &self.0.lists.urls {
            let list = self.fetch(url, LIST_BYTES_MAX).await?;
            self.verify_list(url, &list.body).await?;
            lists.push(LogList::parse(&list.body).map_err(|error| format!("{url}: {error}"))?);
        }
        let list = LogList::merged(lists);
        for unusable in &list.unusable {
            tracing::warn!(log = unusable, "a CT log of the log list cannot be monitored");
        }
        Ok(list)
    }

    /// Verifies the signature of a list from a signer's URL. List and signature are fetched separately and may briefly belong to
    /// different versions. The next attempt fetches both again; until then the logs of the last valid list are followed.
    async fn verify_list(&self, url: &str, list: &[u8]) -> Result<(), String> {
        for signer in &self.0.lists.signers {
            if let Some(signature_location) = signer.signature_url(url) {
                let signature = self.fetch(&signature_location, LIST_SIGNATURE_BYTES_MAX).await?;
                signer.verify(list, &signature.body).map_err(|error| format!("{url}: {error}"))?;
            }
        }
        Ok(())
    }

    async fn fetch(&self, url: &str, bytes_max: usize) -> Result<Reply, String> {
        let reply = self.0.http.get(url, &[], bytes_max, Deadline::within(LIST_LIMIT)).await;
        let reply = reply.map_err(|error| format!("{url}: {}", chain(&error)))?;
        if reply.status == StatusCode::OK { Ok(reply) } else { Err(format!("{url}: {}", reply.status)) }
    }

    /// Starts following logs that are new on the list. Stops following logs that were removed or are no longer active.
    fn update_followed_logs(
        &self,
        list: LogList,
        node: Uuid,
        stop: &CancellationToken,
        tasks: &mut JoinSet<()>,
        followed: &mut HashMap<Hash, CancellationToken>,
    ) {
        let mut watched_logs: Vec<TiledLog> =
            list.tiled.into_iter().filter(|log| log.state.is_watched()).collect();
        if watched_logs.len() > FOLLOWED_MAX {
            tracing::warn!(
                logs = watched_logs.len(),
                FOLLOWED_MAX,
                "more CT logs than the limit; the rest is not monitored"
            );
            watched_logs.truncate(FOLLOWED_MAX);
        }
        followed.retain(|id, ended| {
            let stays = watched_logs.iter().any(|log| log.key.log_id() == id);
            if !stays {
                ended.cancel();
            }
            stays
        });
        self.0.counters.lock().retain_logs(watched_logs.iter().map(|log| log.description.as_str()));
        for log in watched_logs {
            followed.entry(*log.key.log_id()).or_insert_with(|| {
                let (monitor, until) = (self.clone(), stop.child_token());
                let ended = until.clone();
                tasks.spawn(async move {
                    let _live = telemetry::tasks::guard("ct-log");
                    monitor.follow_log(&log, node, &until).await;
                });
                ended
            });
        }
    }

    /// Follows one log while this node can hold its lease.
    async fn follow_log(&self, log: &TiledLog, node: Uuid, stop: &CancellationToken) {
        let options = FollowOptions {
            merge_delay: Duration::from_secs(u64::from(log.mmd_seconds)),
            ..self.0.options.follow
        };
        let (http, clock) = (self.0.http.clone(), self.0.clock.clone());
        let follower = Follower::new(log.key.clone(), &log.monitoring_url, http, options, clock);
        let lease = log_subject(log.key.log_id());
        loop {
            let more = tokio::select! {
                () = stop.cancelled() => break,
                store_step = self.step(&follower, log, &lease, node) => store_step.unwrap_or_else(|error| {
                    tracing::warn!(log = log.description, error = chain(&error), "the position in a CT log was not stored");
                    false
                }),
            };
            if more {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(self.0.options.checkpoint_every) => {}
            }
        }
        // Another node can continue immediately.
        let released = self.0.store.release(&lease, node);
        if !matches!(tokio::time::timeout(RELEASE_LIMIT, released).await, Ok(Ok(()))) {
            tracing::warn!(
                log = log.description,
                "the lease of a CT log could not be released; the lease expires by itself"
            );
        }
    }

    /// Runs one step if this node has the lease. Returns whether to run the next step immediately.
    async fn step(
        &self,
        follower: &Follower,
        log: &TiledLog,
        lease: &str,
        node: Uuid,
    ) -> Result<bool, StoreError> {
        // The semaphore is never closed.
        let _room = self.0.steps.acquire().await;
        let store = &self.0.store;
        if !store.lease(lease, node, self.0.clock.now_us(), in_us(LEASE)).await? {
            return Ok(false);
        }
        let watched = self.watched().await?;
        if watched.logs.is_empty() {
            return Ok(false);
        }
        let row = tables::Ct::of(store).log(*log.key.log_id()).await?;
        let position = match row.as_ref().map(|row| row.position.as_str()) {
            None | Some("") => None,
            Some(text) => match serde_json::from_str::<LogPosition>(text) {
                Ok(position) => Some(position),
                Err(error) => {
                    self.fail(log, format!("the stored position in the log cannot be parsed: {error}"))
                        .await?;
                    return Ok(false);
                }
            },
        };
        let step = tokio::select! {
            step = follower.step(position.as_ref(), &watched.logs) => step,
            lost = self.renew_lease(lease, node) => return lost.map(|()| false),
        };
        match step {
            Ok(step) => self.store_step(log, row, step, &watched).await,
            Err(FollowError::Alarm(alarm)) => {
                self.alarm(log, row.as_ref(), &alarm).await?;
                Ok(false)
            }
            Err(FollowError::Unavailable { reason, .. }) => {
                self.fail(log, reason).await?;
                Ok(false)
            }
        }
    }

    /// Renews a log's lease until another node has it.
    async fn renew_lease(&self, lease: &str, node: Uuid) -> Result<(), StoreError> {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if !self.0.store.lease(lease, node, self.0.clock.now_us(), in_us(LEASE)).await? {
                return Ok(());
            }
        }
    }

    /// Stores the position, the matches and the end of an alarm in one transaction.
    async fn store_step(
        &self,
        log: &TiledLog,
        row: Option<CtLogRow>,
        step: Step,
        watched: &Watched,
    ) -> Result<bool, StoreError> {
        let now_us = self.0.clock.now_us();
        let name = &log.description;
        let stale = step.stale.map(|age| {
            format!(
                "the newest checkpoint was signed {} s ago, longer than the log's maximum merge delay",
                age.as_secs()
            )
        });
        let (failing, behind) =
            row.as_ref().map_or((None, None), |row| (row.failing_since_us, row.behind_since_us));
        let stored = CtLogStep {
            log_id: *log.key.log_id(),
            name: name.clone(),
            from: row.as_ref().map(|row| row.position.clone()).unwrap_or_default(),
            // Serialization cannot fail.
            position: serde_json::to_string(&step.position).unwrap_or_default(),
            behind: i64::try_from(step.behind).unwrap_or(i64::MAX),
            behind_since_us: step.more.then(|| behind.unwrap_or(now_us)),
            failing_since_us: stale.is_some().then(|| failing.unwrap_or(now_us)),
            warning: stale,
            at_us: now_us,
        };
        let found = step
            .matches
            .into_iter()
            .map(|one| ReportedIssuance::from_log_match(one, &watched.logs, name))
            .collect();
        let alarm_ended = row.filter(|row| row.alarm.is_some()).map(|_| self.log_event(log, None));
        let new = self.0.store.write("ct_step", move |tx| {
            async move {
                if !step_ct_log(tx, &stored).await? {
                    return Ok(None);
                }
                let new = record(tx, found, now_us).await?;
                emit(tx, alarm_ended.into_iter().collect()).await?;
                Ok(Some(new.len()))
            }
            .boxed()
        });
        let Some(new) = new.await? else { return Ok(false) };
        let mut counters = self.0.counters.lock();
        let figures = counters.log(name);
        figures.entries += step.entries;
        figures.new += new as u64;
        (figures.size, figures.behind, figures.inconsistent) = (step.position.size, step.behind, false);
        Ok(step.more)
    }

    async fn alarm(&self, log: &TiledLog, row: Option<&CtLogRow>, alarm: &Alarm) -> Result<(), StoreError> {
        let known = row.and_then(|row| row.alarm.as_deref()).and_then(|text| serde_json::from_str(text).ok());
        let is_new = known.is_none_or(|known: Alarm| known.code() != alarm.code());
        let (log_id, name, now_us) = (*log.key.log_id(), log.description.clone(), self.0.clock.now_us());
        let event = is_new.then(|| self.log_event(log, Some(alarm)));
        // Serialization cannot fail.
        let text = serde_json::to_string(alarm).unwrap_or_default();
        tracing::error!(log = name, alarm = alarm.code(), "a CT log is inconsistent: {alarm}");
        {
            let mut counters = self.0.counters.lock();
            let figures = counters.log(&name);
            (figures.inconsistent, figures.failed) = (true, figures.failed + 1);
        }
        let write = self.0.store.write("ct_alarm", move |tx| {
            async move {
                alarm_ct_log(tx, log_id, &name, &text, now_us).await?;
                emit(tx, event.into_iter().collect()).await
            }
            .boxed()
        });
        write.await
    }

    async fn fail(&self, log: &TiledLog, reason: String) -> Result<(), StoreError> {
        let (log_id, name, now_us) = (*log.key.log_id(), log.description.clone(), self.0.clock.now_us());
        self.0.counters.lock().log(&name).failed += 1;
        tracing::debug!(log = name, reason, "a CT log could not be read");
        let write = self.0.store.write("ct_fail", move |tx| {
            async move { fail_ct_log(tx, log_id, &name, &reason, now_us).await }.boxed()
        });
        write.await
    }

    /// Returns the event for a new alarm of a log, or for the end of one.
    fn log_event(&self, log: &TiledLog, alarm: Option<&Alarm>) -> NewEvent {
        let (name, operator) = (log.description.clone(), log.operator.clone());
        let event = match alarm {
            Some(alarm) => Event::CtLogInconsistent(CtLogInconsistent {
                name,
                operator,
                alarm: to_event_alarm(alarm),
                detail: alarm.to_string(),
            }),
            None => Event::CtLogConsistent(CtLogConsistent::Recovered(CtLogRecovered {
                name,
                operator,
                ..CtLogRecovered::default()
            })),
        };
        new_event(self.0.clock.now_us(), log_subject(log.key.log_id()), &event)
    }
}

fn to_event_alarm(alarm: &Alarm) -> CtLogAlarm {
    match alarm {
        Alarm::Forked { .. } => CtLogAlarm::Forked,
        Alarm::RolledBack { .. } => CtLogAlarm::RolledBack,
        Alarm::WrongTile { .. } => CtLogAlarm::WrongTile,
        Alarm::BadCheckpoint { .. } => CtLogAlarm::BadCheckpoint,
    }
}
