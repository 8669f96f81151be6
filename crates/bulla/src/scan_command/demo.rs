//! `bulla scan --demo`: a simulated estate in this process.

use cli::exit::{Exit, Outcome, Problem, chain};
use fleet::{Fleet, Latency, Mix, Plan};
use outbound::resolve::Resolver;
use scan::Trusted;

/// Enough to show every kind of finding, few enough to be over in seconds.
const ENDPOINTS: usize = 400;
/// The same estate each time: what the documentation shows is what one sees.
const SEED: u64 = 20_261_121;

/// The estate, running.
pub(crate) struct Demo {
    fleet: Fleet,
}

/// Starts it.
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
            .hint("it listens on loopback addresses only; is that forbidden here?")
    })?;
    Ok(Demo { fleet })
}

impl Demo {
    /// What to scan.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.fleet.truth().into_iter().map(|truth| truth.target.clone()).collect()
    }

    /// Its name server; its roots are trusted from now on.
    pub(crate) fn resolver(&self, trust: &mut Trusted) -> Resolver {
        trust.add_bytes(self.fleet.roots_pem().as_bytes());
        Resolver::with_upstreams(vec![self.fleet.dns()])
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.fleet.stop().await;
    }
}
