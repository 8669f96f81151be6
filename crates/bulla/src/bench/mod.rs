//! `bulla bench scan`: runs Bulla, and other scanners if they are installed, on the same simulated estate.
//!
//! The estate and each scan are separate processes, as for users. Each run has a new estate with the same seed, so that the server
//! counters belong to one scanner.

mod arguments;
mod estate;
mod measure;
mod verdicts;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};
use cli::exit::{Exit, Outcome, Problem};
use cli::units::count;

use arguments::ScanBench;
use estate::Estate;
use measure::Measurement;
use verdicts::Verdicts;

/// Arguments of `bulla bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// Commands of `bulla bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Scan a simulated estate and print a Markdown table of time, processor, memory and verdicts
    Scan(ScanBench),
}

/// The result of one run of a scanner, on an estate that no other run uses.
struct Row {
    scanner: String,
    measured: Measurement,
    /// Endpoints for which the scanner reported a certificate.
    answered: u64,
    verdicts: Option<Verdicts>,
    counted: String,
}

pub(crate) fn run(args: &BenchArgs) -> Outcome<Exit> {
    let BenchCommand::Scan(args) = &args.command;
    let folder = Folder::new()?;
    let mut rows = Vec::new();
    for run in 1..=args.runs.max(1) {
        let name = if args.runs > 1 { format!("bulla, run {run}") } else { "bulla".into() };
        rows.push(bulla(args, &folder.0, name)?);
    }
    if args.peers {
        for peer in PEERS {
            match installed(peer.program) {
                Some(program) => rows.push(run_peer(args, &folder.0, peer, &program)?),
                None => eprintln!("{} is not installed: {}", peer.program, peer.install),
            }
        }
    }
    cli::exit::print(&markdown(args, &rows))?;
    Ok(Exit::Ok)
}

fn bulla(args: &ScanBench, folder: &Path, name: String) -> Outcome<Row> {
    let estate = Estate::start(args, folder)?;
    let results = folder.join("bulla.jsonl");
    let mut command = Command::new(estate::own_binary()?);
    command.arg("scan");
    // By default a scan stores its results: use a new inventory for each run.
    if !args.scan_arguments.iter().any(|argument| argument == "--no-store") {
        let run = results.with_extension(format!("{}.db", cli::units::now_us()));
        command.arg("--db").arg(run);
    }
    command
        .args(["--no-system-roots", "--quiet", "--output", "jsonl", "--output-file"])
        .arg(&results)
        .arg("--ca")
        .arg(&estate.roots)
        .arg("--dns")
        .arg(&estate.dns)
        .args(&args.scan_arguments)
        .arg(format!("@{}", estate.targets.display()));
    let measured = measure::run(&mut command)?;
    let verdicts = verdicts::compare(&estate.truth, &results)?;
    Ok(Row {
        scanner: name,
        measured,
        answered: verdicts.answered,
        verdicts: Some(verdicts),
        counted: estate.stop(),
    })
}

/// A scanner that Bulla is compared with.
struct Peer {
    program: &'static str,
    install: &'static str,
    /// Builds the arguments from hosts file, port, name server and output file.
    arguments: fn(hosts: &str, port: &str, dns: &str, output: &str) -> Vec<String>,
    /// Whether a line of the output is an endpoint with a certificate.
    answered: fn(&str) -> bool,
}

/// Programs that are measured for comparison. They run as documented, with JSON lines as output. zgrab2 runs without its block
/// list, which excludes loopback. It also runs without its limit of 20 connections per second to one address, because many names
/// share an address here. Neither program supports STARTTLS in the same run, so both get plain TLS endpoints only.
const PEERS: &[Peer] = &[
    Peer {
        program: "tlsx",
        install: "go install github.com/projectdiscovery/tlsx/cmd/tlsx@latest",
        arguments: |hosts, port, dns, output| {
            ["-l", hosts, "-p", port, "-r", dns, "-json", "-o", output, "-silent", "-duc"]
                .map(str::to_owned)
                .into()
        },
        answered: |line| line.contains("\"fingerprint_hash\""),
    },
    Peer {
        program: "zgrab2",
        install: "go install github.com/zmap/zgrab2/cmd/zgrab2@latest",
        arguments: |hosts, port, dns, output| {
            [
                "tls",
                "--port",
                port,
                "--input-file",
                hosts,
                "--output-file",
                output,
                "--dns-resolvers",
                dns,
                "--server-rate-limit",
                "100000",
                "--blocklist-file",
                "/dev/null",
            ]
            .map(str::to_owned)
            .into()
        },
        answered: |line| line.contains("\"server_certificates\""),
    },
];

fn run_peer(args: &ScanBench, folder: &Path, peer: &Peer, program: &Path) -> Outcome<Row> {
    let estate = Estate::start(args, folder)?;
    let (hosts, port) = estate.write_plain_tls_hosts(folder)?;
    let results = folder.join(format!("{}.out", peer.program));
    let text = |path: &Path| path.display().to_string();
    let mut command = Command::new(program);
    command.args((peer.arguments)(&text(&hosts), &port, &estate.dns, &text(&results)));
    let measured = measure::run(&mut command)?;
    let output = std::fs::read_to_string(&results).unwrap_or_default();
    let answered = output.lines().filter(|line| (peer.answered)(line)).count() as u64;
    Ok(Row { scanner: peer.program.to_owned(), measured, answered, verdicts: None, counted: estate.stop() })
}

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn markdown(args: &ScanBench, rows: &[Row]) -> String {
    let what = match args.balancer {
        Some(names) => format!("{} names behind one address", count(names as u64)),
        None => format!("{} endpoints (mix: {}, {} dead)", count(args.endpoints as u64), args.mix, args.dead),
    };
    let latency = args.latency.description();
    let mut out = format!(
        "{what}, {latency}; servers on the same {} processors\n\n\
         | scanner | wall s | processor s | µs an endpoint | endpoints/s | most memory MiB | answered | verdicts right / false / missed |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        std::thread::available_parallelism().map_or(1, usize::from),
    );
    let first = rows.first().map(|row| row.measured.wall.as_secs_f64());
    for row in rows {
        let Measurement { wall, processor, memory_kib, .. } = row.measured;
        let endpoints = args.balancer.unwrap_or(args.endpoints).max(1) as f64;
        let ratio = match first {
            Some(first) if first > 0.0 && rows.len() > 1 => format!(" (×{:.2})", wall.as_secs_f64() / first),
            _ => String::new(),
        };
        out += &format!(
            "| {} | {:.2}{ratio} | {:.2} | {:.0} | {:.0} | {:.0} | {} | {} |\n",
            row.scanner,
            wall.as_secs_f64(),
            processor.as_secs_f64(),
            processor.as_secs_f64() / endpoints * 1e6,
            endpoints / wall.as_secs_f64().max(1e-6),
            memory_kib as f64 / 1024.0,
            count(row.answered),
            row.verdicts.as_ref().map_or_else(|| "not compared".to_owned(), Verdicts::to_string),
        );
    }
    out.push_str("\nWhat the servers counted:\n\n");
    for row in rows {
        out += &format!("- {}: {}\n", row.scanner, row.counted);
    }
    for row in rows.iter().filter(|row| !row.measured.succeeded) {
        out += &format!("\n{} ended with an error: {}\n", row.scanner, row.measured.stderr_tail);
    }
    for difference in rows.iter().filter_map(|row| row.verdicts.as_ref()).flat_map(|v| &v.differences) {
        out += &format!("\n- differs: {difference}");
    }
    out.trim_end().to_owned()
}

/// A temporary folder for this run, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Outcome<Self> {
        let path = std::env::temp_dir().join(format!("bulla-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            Problem::new(Exit::Machine, format_args!("cannot create {}: {error}", path.display()))
                .hint("set TMPDIR to a directory that you may write to")
        })?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
