//! Fault injection: points where a test may stop a deployment, as `kill -9` would.

use std::fmt;
use std::sync::Arc;

/// Stop condition of a test, evaluated before and after every step that changes files. `true` ends the deployment there, without
/// any cleanup.
#[derive(Clone, Default)]
pub struct Fault(Option<Arc<StopCondition>>);

type StopCondition = dyn Fn(&str) -> bool + Send + Sync;

/// A fault that a test injected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("stopped by a test {0}")]
pub struct Halted(String);

impl Fault {
    /// Creates a fault that stops a deployment at the first step for which `should_halt` returns true. `should_halt` gets the name of the step,
    /// such as "before commit 1".
    pub fn new(should_halt: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(should_halt)))
    }

    pub(crate) fn at(&self, step: impl FnOnce() -> String) -> Result<(), Halted> {
        let Some(should_halt) = &self.0 else { return Ok(()) };
        let step = step();
        if should_halt(&step) { Err(Halted(step)) } else { Ok(()) }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Fault(…)" } else { "Fault(none)" })
    }
}
