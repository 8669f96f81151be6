//! Options of a scan: timeouts, concurrency, thresholds and optional checks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outbound::guard::Guard;
use outbound::resolve::Families;

use crate::files::Passwords;
use crate::revocation::RevocationChecker;
use crate::target::Protocol;

/// Timeout of each phase of a probe. Each phase has its own timer.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Timeout of the DNS lookup.
    pub dns: Duration,
    /// Timeout from the first SYN to the connection.
    pub dial: Duration,
    /// Timeout of the STARTTLS dialogue and the handshake together, however slowly bytes arrive.
    pub handshake: Duration,
}

impl Limits {
    /// Returns the same timeout for each phase.
    #[must_use]
    pub fn each(limit: Duration) -> Self {
        Self { dns: limit, dial: limit, handshake: limit }
    }
}

/// Options of a scan; `Default` is `bulla scan` without flags.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Maximum concurrent probes; `None`: as many as file descriptors allow, 2,048 at most.
    pub in_flight: Option<usize>,
    /// Maximum concurrent probes of one address.
    pub per_address: usize,
    /// Maximum concurrent probes per protocol, for protocols that should not use the whole limit, such as mail servers that count
    /// connections. Applies in addition to the total limit.
    pub class_limits: HashMap<Protocol, usize>,
    /// Address families to look up.
    pub families: Families,
    /// Whether every address of a name is probed as a separate endpoint.
    pub all_addresses: bool,
    /// Timeouts of the first probe: short, so that dead endpoints do not occupy the slots. They apply until measured response times
    /// replace them.
    pub first: Limits,
    /// Timeouts of the last probe, for endpoints that did not respond to the first: long, because this probe decides which
    /// endpoints are dead.
    pub second: Limits,
    /// Whether endpoints that did not respond are probed a second time.
    pub second_pass: bool,
    /// Time limit of the whole scan; `None`: no limit. Targets that have not ended by then are [`Cancelled`].
    ///
    /// [`Cancelled`]: crate::ProbeOutcome::Cancelled
    pub deadline: Option<Duration>,
    /// Whether to test if servers also accept obsolete versions and weak cipher suites.
    pub accepted: bool,
    /// Whether to complete TLS 1.3 handshakes, so that servers log no abort and send their tickets.
    pub finish_handshake: bool,
    /// Certificates with at most this many days left are reported as expiring.
    pub expiring_within_days: u32,
    /// Certificates with at most this fraction of their lifetime left are reported as expiring.
    pub expiring_fraction: f64,
    /// Passwords to try on key stores.
    pub passwords: Arc<Passwords>,
    /// Checks the revocation of every certificate, concurrently with the probes; `None`: no checks.
    pub revocation: Option<RevocationChecker>,
    /// The addresses that may be connected to; `None`: all.
    pub guard: Option<Guard>,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            in_flight: None,
            // Enough for 200 names on one load balancer in one second at 117 ms each (DESIGN section 9), and about the load of a
            // browser with a few tabs.
            per_address: 32,
            class_limits: HashMap::new(),
            families: Families::usable(),
            all_addresses: false,
            // A SYN is retransmitted after one second, so this timeout covers two SYNs.
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
