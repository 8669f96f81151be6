//! Budgets of identities: requests per minute, concurrent requests, bytes per hour.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http_relay::access_log::{EndHandler, Ended};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::policy::{BudgetText, Identity};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Budget limit of an identity that a request would exceed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum BudgetExhausted {
    #[error("the limit of {0} requests per minute is reached")]
    Requests(u32),
    #[error("the limit of {0} concurrent requests is reached")]
    Concurrent(u32),
    #[error("the limit of {0} bytes per hour is reached")]
    Bytes(u64),
}

/// Budget usage of each identity. Survives a reload of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Budgets(Mutex<HashMap<Arc<str>, Arc<Mutex<Usage>>>>);

#[derive(Debug)]
struct Usage {
    /// Tokens of the rate limit: requests that may be sent immediately.
    tokens: f64,
    refilled: Instant,
    running: u32,
    bytes: u64,
    hour_began: Instant,
}

/// A request in progress, counted for its identity's budget.
#[derive(Debug)]
pub(crate) struct BudgetUse(Arc<Mutex<Usage>>);

impl EndHandler for BudgetUse {
    fn ended(self: Box<Self>, how: &Ended) {
        let mut usage = self.0.lock();
        usage.bytes = usage.bytes.saturating_add(how.octets_up).saturating_add(how.octets_down);
    }
}

impl Drop for BudgetUse {
    fn drop(&mut self) {
        let mut usage = self.0.lock();
        usage.running = usage.running.saturating_sub(1);
    }
}

impl Budgets {
    /// Starts a request of `identity`. Returns `None` if the identity has no budget.
    ///
    /// # Errors
    /// The exhausted limit, and the time until the next request may be sent.
    pub(crate) fn begin(
        &self,
        identity: &Identity,
    ) -> Result<Option<BudgetUse>, (BudgetExhausted, Duration)> {
        if identity.budget == BudgetText::default() {
            return Ok(None);
        }
        let usage = Arc::clone(self.0.lock().entry(Arc::clone(&identity.name)).or_insert_with(|| {
            let now = Instant::now();
            let tokens = identity.budget.requests_per_minute.unwrap_or(0).into();
            Arc::new(Mutex::new(Usage { tokens, refilled: now, running: 0, bytes: 0, hour_began: now }))
        }));
        usage.lock().begin(&identity.budget)?;
        Ok(Some(BudgetUse(usage)))
    }
}

impl Usage {
    fn begin(&mut self, budget: &BudgetText) -> Result<(), (BudgetExhausted, Duration)> {
        let now = Instant::now();
        if now.duration_since(self.hour_began) >= HOUR {
            (self.bytes, self.hour_began) = (0, now);
        }
        if let Some(most) = budget.bytes_per_hour.filter(|most| self.bytes >= *most) {
            return Err((BudgetExhausted::Bytes(most), HOUR - now.duration_since(self.hour_began)));
        }
        if let Some(most) = budget.concurrent_requests.filter(|most| self.running >= *most) {
            return Err((BudgetExhausted::Concurrent(most), Duration::from_secs(1)));
        }
        if let Some(most) = budget.requests_per_minute {
            let each_second = f64::from(most) / MINUTE.as_secs_f64();
            let refilled = now.duration_since(self.refilled).as_secs_f64() * each_second;
            (self.tokens, self.refilled) = ((self.tokens + refilled).min(most.into()), now);
            if self.tokens < 1.0 {
                let wait =
                    if most == 0 { HOUR } else { Duration::from_secs_f64((1.0 - self.tokens) / each_second) };
                return Err((BudgetExhausted::Requests(most), wait));
            }
            self.tokens -= 1.0;
        }
        self.running += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{IdentityText, Policy, PolicyText};

    fn identity(budget: BudgetText) -> Arc<Identity> {
        let one =
            IdentityText { name: "ci".into(), users: vec!["ci".into()], budget, ..IdentityText::default() };
        let policy = Policy::compile(&PolicyText { identities: vec![one], ..PolicyText::default() }).unwrap();
        Arc::clone(policy.identity("ci").unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn request_budget_refills_over_time() {
        let (budgets, ci) = (
            Budgets::default(),
            identity(BudgetText { requests_per_minute: Some(6), ..BudgetText::default() }),
        );
        for _ in 0..6 {
            assert!(budgets.begin(&ci).unwrap().is_some());
        }
        let (why, wait) = budgets.begin(&ci).unwrap_err();
        assert_eq!((why, wait.as_secs_f64().ceil() as u64), (BudgetExhausted::Requests(6), 10));
        tokio::time::advance(wait + Duration::from_millis(1)).await;
        assert!(budgets.begin(&ci).is_ok() && budgets.begin(&ci).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_and_byte_budgets_are_charged_when_requests_end() {
        let budget =
            BudgetText { concurrent_requests: Some(2), bytes_per_hour: Some(100), ..BudgetText::default() };
        let (budgets, ci) = (Budgets::default(), identity(budget));
        let first = budgets.begin(&ci).unwrap().unwrap();
        let second = budgets.begin(&ci).unwrap().unwrap();
        assert_eq!(budgets.begin(&ci).unwrap_err().0, BudgetExhausted::Concurrent(2));
        Box::new(first).ended(&Ended { octets_up: 60, ..Ended::default() });
        let third = budgets.begin(&ci).unwrap().unwrap();
        Box::new(second).ended(&Ended { octets_down: 40, ..Ended::default() });
        drop(third);
        let (why, wait) = budgets.begin(&ci).unwrap_err();
        assert_eq!(why, BudgetExhausted::Bytes(100));
        tokio::time::advance(wait).await;
        assert!(budgets.begin(&ci).is_ok());
        assert!(budgets.begin(&identity(BudgetText::default())).unwrap().is_none());
    }
}
