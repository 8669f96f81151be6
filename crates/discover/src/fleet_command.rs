//! `bulla fleet up`: a simulated estate for tests of scanners.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use cli::exit::{Exit, Outcome, Problem, chain};
use cli::units::count;
use fleet::{Fleet, Latency, Mix, Plan};

/// Arguments of `bulla fleet`.
#[derive(Args, Debug)]
pub struct FleetArgs {
    #[command(subcommand)]
    /// The subcommand of `bulla fleet`.
    pub command: FleetCommand,
}

/// Commands of `bulla fleet`.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Start the fleet on loopback and print the ground truth of each endpoint; runs until Ctrl-C
    ///
    /// The ground truth goes to standard output, one JSON object per line: what to scan and what to expect. Instructions for the
    /// scan go to standard error.
    Up(UpArgs),
}

/// Arguments of `bulla fleet up`.
#[derive(Args, Debug)]
pub struct UpArgs {
    /// Number of endpoints
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    endpoints: usize,
    /// Latency of DNS, connections and handshakes
    #[arg(long, value_enum, value_name = "KIND", default_value = "none")]
    latency: LatencyArg,
    /// Kinds of endpoints
    #[arg(long, value_enum, value_name = "KIND", default_value = "all")]
    mix: MixArg,
    /// With --mix balancer: number of names behind the one address
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    names: usize,
    /// Fraction of dead endpoints, from 0 to 1
    #[arg(long, value_name = "FRACTION", default_value_t = 0.05)]
    dead: f64,
    /// Seed of the fleet; the same seed creates the same fleet
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// The port of plain TLS endpoints [default: any free port]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Serve CRLs, and name them in the leaves; one healthy leaf in ten is revoked
    #[arg(long)]
    revocation: bool,
    /// Write the ground truth into this file instead of standard output
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Write the fleet's root certificate into this file (PEM)
    #[arg(long, value_name = "FILE")]
    ca_out: Option<PathBuf>,
    /// Write the scan targets into this file, one per line
    #[arg(long, value_name = "FILE")]
    targets_out: Option<PathBuf>,
}

/// Latency of DNS, connections and handshakes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LatencyArg {
    /// No added latency
    None,
    /// DNS 8 to 40 ms, connecting 20 to 120 ms, handshake 80 to 300 ms
    Certpulse,
    /// DNS 8 to 40 ms, connecting 29 ms, handshake 117 ms: like the load balancer in other scanners' measurements
    Balancer,
}

impl LatencyArg {
    fn latency(self) -> Latency {
        let exactly = |ms| Duration::from_millis(ms)..=Duration::from_millis(ms);
        match self {
            Self::None => Latency::None,
            Self::Certpulse => Latency::CertPulse,
            Self::Balancer => Latency::Custom {
                dns: Duration::from_millis(8)..=Duration::from_millis(40),
                dial: exactly(29),
                handshake: exactly(117),
            },
        }
    }

    /// Returns the word for this latency on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Certpulse => "certpulse",
            Self::Balancer => "balancer",
        }
    }

    /// Returns the description for the heading of a table.
    pub fn description(self) -> &'static str {
        match self {
            Self::None => "no latency",
            Self::Certpulse => "CertPulse's latencies",
            Self::Balancer => "latencies of a load balancer (DNS 8 to 40 ms, connect 29, handshake 117)",
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MixArg {
    /// All kinds of endpoints and faults
    All,
    /// Only endpoints without faults
    Healthy,
    /// Endpoints of an ordinary organisation
    Demo,
    /// Many names behind one address
    Balancer,
}

/// Starts the fleet and waits for Ctrl-C.
pub async fn run(args: &FleetArgs) -> Outcome<Exit> {
    let FleetCommand::Up(args) = &args.command;
    if !(0.0..=1.0).contains(&args.dead) {
        return Err(
            Problem::usage("--dead must be a fraction").hint("give a number from 0 to 1, for example 0.05")
        );
    }
    let stop = cli::stop::on_signal()?;
    let fleet = Fleet::start(&plan(args)).await.map_err(|error| {
        Problem::new(Exit::Machine, format_args!("the fleet cannot start: {}", chain(&error)))
            .hint("try another --port, or fewer --endpoints")
    })?;
    announce(args, &fleet)?;
    stop.cancelled().await;
    let counters = serde_json::to_string(&fleet.counters()).unwrap_or_default();
    eprintln!("counted: {counters}");
    fleet.stop().await;
    Ok(Exit::Ok)
}

fn plan(args: &UpArgs) -> Plan {
    Plan {
        endpoints: args.endpoints,
        seed: args.seed,
        latency: args.latency.latency(),
        dead_fraction: args.dead,
        mix: match args.mix {
            MixArg::All => Mix::AllKinds,
            MixArg::Healthy => Mix::Healthy,
            MixArg::Demo => Mix::Demo,
            MixArg::Balancer => Mix::Balancer { names: args.names },
        },
        port: args.port,
        revocation: args.revocation,
    }
}

fn announce(args: &UpArgs, fleet: &Fleet) -> Outcome<()> {
    let endpoints: Vec<_> = fleet.truth().into_iter().collect();
    if let Some(path) = &args.ca_out {
        write(path, |out| out.write_all(fleet.roots_pem().as_bytes()))?;
    }
    if let Some(path) = &args.targets_out {
        write(path, |out| endpoints.iter().try_for_each(|truth| writeln!(out, "{}", truth.target)))?;
    }
    let truth = |out: &mut dyn Write| {
        endpoints.iter().try_for_each(|truth| {
            serde_json::to_writer(&mut *out, truth)?;
            out.write_all(b"\n")
        })
    };
    match &args.truth {
        Some(path) => write(path, |out| truth(out))?,
        None => {
            let mut out = BufWriter::new(std::io::stdout());
            truth(&mut out).and_then(|()| out.flush()).map_err(|error| Problem::output(&error))?;
        }
    }
    let shown = |path: &Option<PathBuf>, otherwise: &str| {
        path.as_ref().map_or_else(|| otherwise.to_owned(), |path| path.display().to_string())
    };
    eprintln!("ready: {} endpoints, name server {}", count(endpoints.len() as u64), fleet.dns());
    eprintln!(
        "scan it: bulla scan @{} --dns {} --ca {} --no-store",
        shown(&args.targets_out, "TARGETS (see --targets-out)"),
        fleet.dns(),
        shown(&args.ca_out, "ROOT (see --ca-out)"),
    );
    Ok(())
}

fn write(path: &Path, content: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Outcome<()> {
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        content(&mut out)?;
        out.flush()
    });
    written.map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display()))
            .hint("choose a file in a folder that exists and that you may write to")
    })
}
