//! `bulla scan --demo`: a simulated estate in this process.

use cli::exit::{Exit, Outcome, Problem, chain};
use fleet::{Fleet, Latency, Mix, Plan};
use outbound::resolve::Resolver;
use scan::Trusted;

/// Number of endpoints: enough for every kind of finding, and few enough for a scan of a few seconds.
const ENDPOINTS: usize = 400;
/// Seed of the estate. It is fixed, so that users see the same estate as in the documentation.
const SEED: u64 = 20_261_121;

/// A simulated estate of endpoints on loopback that runs until dropped.
pub(crate) struct Demo {
    fleet: Fleet,
}

/// Starts the simulated estate on loopback.
pub(crate) async fn start() -> Outcome<Demo> {
    let plan = Plan {
        endpoints: ENDPOINTS,
        seed: SEED,
        latency: Latency::CertPulse,
        mix: Mix::Demo,
        revocation: true,
        ..Plan::default()
    };
    let fleet = Fleet::start(&plan).await.map_err(|error| {
        Problem::new(Exit::Machine, format_args!("the demo cannot start: {}", chain(&error)))
            .hint("the demo listens only on loopback addresses; check that this host allows it")
    })?;
    Ok(Demo { fleet })
}

impl Demo {
    /// Returns the targets of the scan.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.fleet.truth().into_iter().map(|truth| truth.target.clone()).collect()
    }

    /// Returns the estate's name server. Adds the estate's roots to `trust`.
    pub(crate) fn resolver(&self, trust: &mut Trusted) -> Resolver {
        trust.add_bytes(self.fleet.roots_pem().as_bytes());
        Resolver::with_upstreams(vec![self.fleet.dns()])
    }

    pub(crate) async fn stop(self) {
        self.fleet.stop().await;
    }
}
