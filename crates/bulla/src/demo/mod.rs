//! `bulla up --demo`: a simulated estate, and one certificate that passes through every role, without a network.
//!
//! `bulla up` runs as a separate process, with a temporary data folder. The steps are the commands that a person would type.

mod demo_folder;
mod fixtures;
mod journey;
mod servers;

use std::process::Stdio;
use std::time::{Duration, Instant};

use cli::exit::{Exit, Outcome, Problem, chain};
use fleet::{Fleet, Mix, Plan};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use self::demo_folder::DemoFolder;
use self::fixtures::Receiver;
use self::journey::{DemoContext, step};
use self::servers::{DemoServer, loopback_bind_error};
use crate::serve_command;

/// Endpoints of the simulated estate: enough for most kinds of findings.
const ENDPOINTS: usize = 120;
/// Seed of the estate: every demo has the same one.
const SEED: u64 = 20_261_121;
/// The timeout of a graceful shutdown of all roles.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(40);
/// The output line of `bulla up` after which the API is available.
const READY_LINE: &str = "bulla is up";

/// Runs the demo until Ctrl-C.
pub(crate) async fn run() -> Outcome<Exit> {
    let stop = cli::stop::on_signal_within(SHUTDOWN_TIMEOUT)?;
    let began = Instant::now();
    let demo_folder = DemoFolder::create()?;
    eprintln!("a demo of Bulla on this machine alone, in {}", demo_folder.folder().display());
    let fleet = estate().await?;
    let receiver = || Receiver::start().map_err(|error| loopback_bind_error(&error));
    let (webhook, upstream) = (receiver()?, receiver()?);
    let shop = DemoServer::start(demo_folder.folder())?;
    let endpoints = prepare(&demo_folder, &fleet, upstream.port).await?;
    let mut process = None;
    let outcome = {
        let journey = DemoContext {
            demo_folder: &demo_folder,
            shop: &shop,
            webhook: &webhook,
            upstream: &upstream,
            endpoints,
        };
        let all = async {
            step(async {
                process = Some(Process::start(&demo_folder).await?);
                Ok("every role runs in one process: CA, key service, proxy, TLS terminator and agent"
                    .to_owned())
            })
            .await?;
            journey.run().await?;
            print_next_steps(&demo_folder, began.elapsed()).await
        };
        tokio::select! {
            outcome = Box::pin(all) => outcome,
            () = stop.cancelled() => Ok(()),
        }
    };
    let outcome = match (&mut process, outcome) {
        (Some(process), Ok(())) => process.wait_for_exit(&stop).await,
        (_, outcome) => outcome,
    };
    if let Some(process) = process {
        process.stop().await;
    }
    fleet.stop().await;
    outcome.map(|()| Exit::Ok)
}

async fn estate() -> Outcome<Fleet> {
    let plan =
        Plan { endpoints: ENDPOINTS, seed: SEED, mix: Mix::Demo, dead_fraction: 0.0, ..Plan::default() };
    Fleet::start(&plan).await.map_err(|error| {
        Problem::new(Exit::Machine, format_args!("the demo cannot start: {}", chain(&error)))
            .hint("the demo needs loopback addresses; check also the limit of open files (ulimit -n)")
    })
}

/// Writes the files of the demo. Returns the number of endpoints of the estate.
async fn prepare(demo_folder: &DemoFolder, fleet: &Fleet, upstream: u16) -> Outcome<usize> {
    let targets: Vec<String> = fleet.truth().into_iter().map(|truth| truth.target).collect();
    demo_folder.write("estate.txt", &targets.join("\n"))?;
    demo_folder.write("estate-roots.pem", &fleet.roots_pem())?;
    demo_folder.configure(fleet.dns(), upstream)?;
    // With a policy, `bulla up` has the role agent. The policy allows nothing yet.
    let policy = demo_folder.path("agent.toml").display().to_string();
    demo_folder.run_checked(&["agent", "policy", "init", "--policy", &policy]).await?;
    Ok(targets.len())
}

/// Prints commands that show what the demo has created.
async fn print_next_steps(demo_folder: &DemoFolder, took: Duration) -> Outcome<()> {
    let link = demo_folder.run_checked(&["console"]).await?;
    eprintln!(
        "done in {:.1} s. Everything still runs; Ctrl-C ends it and removes the folder.",
        took.as_secs_f64()
    );
    eprintln!("open the console: {}", link.trim());
    eprintln!("  valid for 10 minutes, for one use; `bulla console` creates another");
    eprintln!("in another terminal:");
    let (data, configuration) = (demo_folder.path("data"), demo_folder.path("bulla.toml"));
    eprintln!("  export BULLA_DATA={} BULLA_CONFIG={}", data.display(), configuration.display());
    eprintln!("  bulla cert list; bulla watch list; bulla alert list; bulla doctor");
    Ok(())
}

/// The process `bulla up` of the demo.
struct Process(Child);

impl Process {
    /// Starts `bulla up` and waits until it is ready.
    async fn start(demo_folder: &DemoFolder) -> Outcome<Self> {
        let mut command = demo_folder.bulla(&["up", serve_command::END_WITH_PARENT]);
        // The demo stops this process itself, so signals from the terminal must not reach it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let failed = |why: &dyn std::fmt::Display| {
            Problem::new(Exit::Machine, format_args!("`bulla up` of the demo did not start: {why}"))
        };
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let Some(errors) = child.stderr.take() else {
            return Err(failed(&"the process has no standard error"));
        };
        let mut lines = BufReader::new(errors).lines();
        let mut output = String::new();
        loop {
            match lines.next_line().await {
                Ok(Some(line)) if line.starts_with(READY_LINE) => break,
                Ok(Some(line)) => output.push_str(&format!("\n{line}")),
                Ok(None) | Err(_) => return Err(failed(&output)),
            }
        }
        // Read all output, so that the process never blocks on a full pipe. Its warnings about the estate are expected.
        tokio::spawn(async move {
            let _live = telemetry::tasks::guard("demo-log");
            while let Ok(Some(line)) = lines.next_line().await {
                tracing::info!("{line}");
            }
        });
        Ok(Self(child))
    }

    /// Waits for a signal, or for an unexpected end of the process.
    async fn wait_for_exit(&mut self, stop: &CancellationToken) -> Outcome<()> {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            status = self.0.wait() => {
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(Problem::new(Exit::Machine, format_args!("`bulla up` of the demo ended: {status}")))
            }
        }
    }

    async fn stop(mut self) {
        if let Some(id) = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(id, Signal::TERM);
        }
        let _ = self.0.wait().await;
    }
}
