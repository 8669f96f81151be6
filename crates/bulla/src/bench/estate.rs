//! Runs the simulated estate in a separate process.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use cli::exit::{Exit, Outcome, Problem};
use rustix::process::{Pid, Signal, kill_process};

use super::arguments::ScanBench;

/// A running process that simulates the hosts and certificates of an organization.
pub(crate) struct Estate {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub(crate) dns: String,
    pub(crate) truth: PathBuf,
    pub(crate) roots: PathBuf,
    pub(crate) targets: PathBuf,
}

/// Returns the path of this binary.
pub(crate) fn own_binary() -> Outcome<PathBuf> {
    std::env::current_exe().map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot read the path of this program: {error}"))
    })
}

impl Estate {
    /// Starts the estate and waits until it is ready.
    pub(crate) fn start(args: &ScanBench, folder: &Path) -> Outcome<Self> {
        let [truth, roots, targets] =
            ["truth.jsonl", "roots.pem", "targets.txt"].map(|name| folder.join(name));
        let mut command = Command::new(own_binary()?);
        command.args(["fleet", "up", "--seed", "1", "--endpoints", &args.endpoints.to_string()]);
        command.args(["--dead", &args.dead.to_string()]);
        command.args(["--latency", args.latency.word()]);
        match args.balancer {
            Some(names) => command.args(["--mix", "balancer", "--names", &names.to_string()]),
            None => command.args(["--mix", &args.mix]),
        };
        command.arg("--truth").arg(&truth).arg("--ca-out").arg(&roots).arg("--targets-out").arg(&targets);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
        let Some(stderr) = child.stderr.take() else {
            return Err(failed("the process has no standard error"));
        };
        let mut stderr = BufReader::new(stderr);
        let mut output = String::new();
        while let Ok(read @ 1..) = stderr.read_line(&mut output) {
            let line = &output[output.len() - read..];
            if let Some((_, dns)) = line.trim().rsplit_once("name server ") {
                let dns = dns.to_owned();
                return Ok(Self { child, stderr, dns, truth, roots, targets });
            }
        }
        let _ = child.wait();
        Err(failed(output.trim()))
    }

    /// Writes the hosts of the most used port with plain TLS (no STARTTLS) to a file. Returns the file and the port.
    pub(crate) fn write_plain_tls_hosts(&self, folder: &Path) -> Outcome<(PathBuf, String)> {
        let targets = std::fs::read_to_string(&self.targets).map_err(failed)?;
        let plain: Vec<_> = targets
            .lines()
            .filter(|target| !target.contains("://"))
            .filter_map(|target| target.rsplit_once(':'))
            .collect();
        let mut ports = std::collections::BTreeMap::<&str, usize>::new();
        for (_, port) in &plain {
            *ports.entry(port).or_default() += 1;
        }
        let (port, _) = ports.into_iter().max_by_key(|(_, hosts)| *hosts).unwrap_or(("443", 0));
        let hosts: Vec<_> = plain.iter().filter(|(_, p)| *p == port).map(|(host, _)| *host).collect();
        let file = folder.join("hosts.txt");
        std::fs::write(&file, hosts.join("\n") + "\n").map_err(failed)?;
        Ok((file, port.to_owned()))
    }

    /// Stops the estate and returns the counters of its servers.
    pub(crate) fn stop(mut self) -> String {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let mut output = String::new();
        let _ = self.stderr.read_to_string(&mut output);
        let _ = self.child.wait();
        let counted = output.lines().find_map(|line| line.strip_prefix("counted: "));
        counted.unwrap_or("nothing").to_owned()
    }
}

impl Drop for Estate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(why: impl std::fmt::Display) -> Problem {
    Problem::new(Exit::Machine, format_args!("the estate cannot start: {why}"))
        .hint("try `bulla fleet up` by itself")
}
