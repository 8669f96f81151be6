//! Options of a scan.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outbound::guard::Guard;
use outbound::resolve::Families;

use crate::files::Passwords;
use crate::revocation::RevocationChecker;
use crate::target::Protocol;

/// How long each phase of a look may take. Every phase has its own clock.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From asking for the name to its addresses.
    pub dns: Duration,
    /// From the first SYN to the connection.
    pub dial: Duration,
    /// The plain-text dialogue and the handshake together, however slowly bytes drip.
    pub handshake: Duration,
}

impl Limits {
    /// The same limit for each phase.
    #[must_use]
    pub fn each(limit: Duration) -> Self {
        Self { dns: limit, dial: limit, handshake: limit }
    }
}

/// Options of a scan; `Default` is `bulla scan` without flags.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Looks under way at once; `None`: what the descriptor limit allows, 2,048 at most.
    pub in_flight: Option<usize>,
    /// Looks under way at once to one address.
    pub per_address: usize,
    /// Looks under way at once to all endpoints of a protocol, for those that deserve less than the
    /// whole budget (mail servers that count connections, say). Taken after the budget for all, given
    /// back with it.
    pub class_limits: HashMap<Protocol, usize>,
    /// Which address families to ask for.
    pub families: Families,
    /// Look at every address of a name, each as an endpoint of its own.
    pub all_addresses: bool,
    /// Limits of the first try: short, so that the dead do not hold the pool. They hold until the answers of others show how
    /// long an answer takes.
    pub first: Limits,
    /// Limits of the last try, for those that were silent at the first: generous, for it decides who is dead.
    pub second: Limits,
    /// Whether the silent get a second try at all.
    pub second_pass: bool,
    /// How long the whole scan may take; `None`: as long as it needs. What has not ended by then is [`Cancelled`].
    ///
    /// [`Cancelled`]: crate::ProbeOutcome::Cancelled
    pub deadline: Option<Duration>,
    /// Try whether servers accept obsolete versions and weak cipher suites, too, besides what they choose.
    pub accepted: bool,
    /// Complete TLS 1.3 handshakes, so that servers log no abort and show their tickets.
    pub finish_handshake: bool,
    /// Certificates with at most this many days left are about to expire.
    pub expiring_within_days: u32,
    /// Certificates with at most this fraction of their life left are about to expire.
    pub expiring_fraction: f64,
    /// Tried on key stores.
    pub passwords: Arc<Passwords>,
    /// Checks the revocation of every certificate, in parallel with the probes; `None`: no checks.
    pub revocation: Option<RevocationChecker>,
    /// The addresses that may be connected to; `None`: all.
    pub guard: Option<Guard>,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            in_flight: None,
            // 200 names behind one balancer in one second at 117 ms each (DESIGN section 9), and
            // still no more than a browser with a few tabs open costs it.
            per_address: 32,
            class_limits: HashMap::new(),
            families: Families::usable(),
            all_addresses: false,
            // A SYN is repeated after one second: this sees two of them.
            first: Limits::each(Duration::from_millis(2_000)),
            second: Limits::each(Duration::from_secs(10)),
            second_pass: true,
            deadline: None,
            accepted: true,
            finish_handshake: false,
            expiring_within_days: x509::lint::LintContext::EXPIRING_WITHIN_DAYS,
            expiring_fraction: x509::lint::LintContext::EXPIRING_FRACTION,
            passwords: Arc::default(),
            revocation: None,
            guard: None,
        }
    }
}
