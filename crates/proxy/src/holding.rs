//! Holds requests and tunnels for a person's decision, if a rule of the policy requires it. Until the decision, the proxy does not
//! resolve or dial the host, inject credentials, or read the body.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_relay::access_log::Entry;
use http_relay::client::Client;
use http_relay::client_body::ClientBody;
use http_relay::target::Target;
use hyper::Request;
use x509::HostOrIp;

use super::audited::AuditedDecision;
use super::connection_context::ConnectionContext;
use super::gateway::{Admission, HoldOrder, NotAdmitted, Refused};
use super::hold_end::{CLIENT_GONE, HoldEnd};
use super::holds::{Answer, Approval, Hold, HoldRecord};
use super::proxy::Proxy;
use super::requests::{AuditEvent, RuleSet};

impl Proxy {
    /// Decides about a request. If a rule holds the request, waits for a person's decision. After the wait, `rules` is the current
    /// version, and `began` is moved forward by the length of the wait.
    pub(super) async fn admit_or_hold(
        &self,
        rules: &mut Arc<RuleSet>,
        context: &ConnectionContext,
        request: &Request<ClientBody>,
        host: &HostOrIp,
        (began, entry): (&mut Instant, &mut Option<Box<Entry>>),
    ) -> Result<Admission, Box<Refused>> {
        let mut approval = None;
        loop {
            let order = match self.admit(rules, context, request, host, approval.as_ref()) {
                Ok(admission) => return Ok(admission),
                Err(NotAdmitted::Refused(refused)) => return Err(refused),
                Err(NotAdmitted::Held(order)) => order,
            };
            let audited = AuditedDecision::request(request, context, Some(&order.judgement()));
            // Set before the wait, so that the access log contains the decision even if the client disconnects during the wait.
            entry.iter_mut().for_each(|entry| entry.set_judgement(order.judgement()));
            let arrived = Instant::now();
            // Boxed to keep this future small, because few requests are held.
            let held = Box::pin(self.hold(*order, audited, &context.client)).await;
            *began += arrived.elapsed();
            approval = Some(held?);
            // The policy may have changed during the wait.
            *rules = self.rules.now();
        }
    }

    /// Decides about a tunnel to `target` for the host `name`. If a rule holds it, waits for a person's decision.
    pub(super) async fn judge_or_hold_tunnel(
        &self,
        client: &Client,
        target: &Target,
        name: &HostOrIp,
    ) -> Result<Admission, Box<Refused>> {
        let mut approval = None;
        loop {
            let order = match self.judge_tunnel(client, target, name, approval.as_ref()) {
                Ok(admission) => return Ok(admission),
                Err(NotAdmitted::Refused(refused)) => return Err(refused),
                Err(NotAdmitted::Held(order)) => order,
            };
            let audited =
                AuditedDecision::connection("tunnel", client, (target, name), Some(&order.judgement()));
            approval = Some(Box::pin(self.hold(*order, audited, client)).await?);
        }
    }

    /// Holds a request until a person decides, the deadline passes, the client disconnects, or the proxy stops. `audited` is the
    /// decision to hold the request.
    async fn hold(
        &self,
        order: HoldOrder,
        audited: AuditedDecision,
        client: &Client,
    ) -> Result<Approval, Box<Refused>> {
        let HoldOrder { key, request, hold_for, rule, mut refusal } = order;
        let held = match &self.options.holds {
            Some(holds) => holds.hold(key, request).map_err(HoldEnd::TooMany),
            None => Err(HoldEnd::Unavailable),
        };
        let mut hold = match held {
            Ok(hold) => hold,
            Err(end) => {
                self.metrics.hold_ended(end.name());
                refusal.after(&end, hold_for);
                return Err(refusal);
            }
        };
        let mut record = HoldRecord { hold: Arc::clone(hold.id()), request: Some(audited.id()), by: None };
        let audited = audited.with_hold(Some(&record));
        let _held = self.metrics.held();
        let mut abandoned = Abandoned { proxy: self, event: Some(audited.denied(CLIENT_GONE)) };
        let end = match self.requests.audit(|| audited.unsent()).await {
            Ok(()) => self.decided(&mut hold, hold_for, client).await,
            Err(_) => HoldEnd::NotAudited,
        };
        abandoned.event = None;
        // A decision that a person made at the same moment as the deadline takes precedence.
        let end = hold.end().map_or(end, HoldEnd::Answered);
        self.metrics.hold_ended(end.name());
        record.by = end.by();
        let (id, outcome, by) = (&record.hold, end.name(), record.by.as_deref());
        tracing::info!(%client, %id, outcome, by, "the hold of a request ended");
        if matches!(end, HoldEnd::Answered(Answer::Approved { .. })) {
            return Ok(Approval { rule, record });
        }
        refusal.after(&end, hold_for);
        refusal.page.hold = Some(Arc::clone(&record.hold));
        refusal.held = Some(record);
        Err(refusal)
    }

    /// Waits until a person decides, the deadline passes, the client disconnects, or the proxy stops.
    async fn decided(&self, hold: &mut Hold, hold_for: Duration, client: &Client) -> HoldEnd {
        let id = Arc::clone(hold.id());
        tracing::warn!(%client, %id, "a request waits for an approval: see `bulla proxy held`");
        hold.announce();
        let stopping = self.tasks.stopping();
        tokio::select! {
            answer = hold.answered() => answer.map_or(HoldEnd::Stopping, HoldEnd::Answered),
            () = tokio::time::sleep(hold_for) => HoldEnd::Deadline,
            () = client.hung_up() => HoldEnd::ClientDisconnected,
            () = stopping.cancelled() => HoldEnd::Stopping,
        }
    }
}

/// Guard that records an abandoned request, if the future is dropped while the request is held.
struct Abandoned<'a> {
    proxy: &'a Proxy,
    event: Option<AuditEvent>,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let Some(event) = self.event.take() else { return };
        self.proxy.metrics.hold_ended(HoldEnd::ClientDisconnected.name());
        if let Some(log) = self.proxy.requests.audit_log() {
            log.note(event);
        }
    }
}
