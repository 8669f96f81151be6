//! The checks that every change must pass, in order, from a clean checkout. The run stops at the first failed step and reports it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::setup;
use crate::shell::{Failure, cargo, command, output_of, root, run as run_command};

const CARGO_DENY_VERSION: &str = "0.20.2";
/// Timeout in seconds for downloading the RustSec advisory database, which is a few megabytes.
const ADVISORY_FETCH_SECONDS_MAX: &str = "120";
/// Number of write points at which the crash tests kill the binary, before and after each. `BULLA_CRASHES=all` takes about twenty
/// minutes.
const CRASH_POINTS: &str = "12";

/// Steps that only compile. A full run executes them during the tests, at the lowest priority: tests wait for other programs and
/// timers, so the processors are partly idle.
const BESIDE_TESTS: &[&str] = &["clippy", "doc"];
/// Output of cargo after it has compiled, when it starts to run tests. From then on it holds no lock on the target folder.
const TESTS_RUN: &str = "Running ";

type Step = (&'static str, fn() -> Result<(), Failure>);

const STEPS: &[Step] = &[
    ("tools", tools),
    ("lock", lock),
    ("tests", tests),
    ("abuse", abuse),
    ("kernels", crate::kernels::run),
    ("features", features),
    ("fmt", fmt),
    ("clippy", clippy),
    ("doc", doc),
    ("site", crate::docs::run_if_installed),
    ("deny", deny),
    ("advisories", advisories),
    ("packages", packages),
    ("interop", interop),
];

/// Runs the named steps, or all of them.
///
/// # Errors
/// A name is unknown, or a step failed.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    let steps = chosen(names)?;
    let started = Instant::now();
    for (name, step) in steps {
        if names.is_empty() && BESIDE_TESTS.contains(name) {
            continue;
        }
        println!("\n== {name}");
        let step_started = Instant::now();
        let step: fn() -> Result<(), Failure> =
            if names.is_empty() && *name == "tests" { tests_and_beside } else { *step };
        step().map_err(|failure| Failure::Program(format!("step {name} failed: {failure}")))?;
        println!("== {name}: {} s", step_started.elapsed().as_secs());
    }
    println!("\n== all passed in {} s", started.elapsed().as_secs());
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Step>, Failure> {
    if names.is_empty() {
        return Ok(STEPS.iter().collect());
    }
    let find = |name: &String| {
        STEPS.iter().find(|(known, _)| known == name).ok_or_else(|| {
            let known: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
            Failure::Usage(format!("unknown step `{name}`; the steps are: {}", known.join(" ")))
        })
    };
    names.iter().map(find).collect()
}

/// Runs `cargo test --workspace` with two threads per core, because many tests mostly wait for other programs.
///
/// # Errors
/// A test failed, or does not compile.
pub(crate) fn test(arguments: &[String]) -> Result<(), Failure> {
    let mut tests = cargo(&["test"]);
    // `-p CRATE` selects crates. cargo rejects it together with `--workspace`.
    let chooses = arguments.iter().any(|argument| argument == "-p" || argument.starts_with("--package"));
    if !chooses {
        tests.arg("--workspace");
    }
    tests.args(arguments);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        tests.env("RUST_TEST_THREADS", (2 * cores).to_string());
    }
    if has_ifma() {
        // Require a test of the batch kernel with the processor's own instructions if it supports them, in addition to the portable
        // model.
        tests.env("BULLA_IFMA", "1");
    } else {
        eprintln!(
            "this processor lacks AVX-512 IFMA: the batch kernel is tested by the model of the instructions alone"
        );
    }
    run_command(&mut tests)
}

fn has_ifma() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("avx512ifma"))
}

fn tools() -> Result<(), Failure> {
    setup::run()?;
    let installed = output_of(&mut cargo(&["deny", "--version"])).unwrap_or_default();
    if installed.trim() != format!("cargo-deny {CARGO_DENY_VERSION}") {
        // It runs for seconds only, so an optimised build would take longer in total.
        let package = format!("cargo-deny@{CARGO_DENY_VERSION}");
        let mut install = cargo(&["install", "--debug", "--locked", &package]);
        run_command(install.env("CARGO_PROFILE_DEV_DEBUG", "none"))?;
    }
    run_command(&mut cargo(&["--version"]))?;
    run_command(&mut cargo(&["deny", "--version"]))
}

/// Fails if Cargo.lock does not match the manifests, before another step updates it silently.
fn lock() -> Result<(), Failure> {
    run_command(&mut cargo(&["fetch", "--locked"]))
}

/// Runs the README's test command.
fn tests() -> Result<(), Failure> {
    run_command(&mut test_command())
}

fn test_command() -> Command {
    let crashes = std::env::var("BULLA_CRASHES").unwrap_or_else(|_| CRASH_POINTS.to_owned());
    // Report all failures in one run.
    let mut tests = cargo(&["xtask", "test", "--no-fail-fast"]);
    tests.env("BULLA_CRASHES", crashes);
    tests
}

/// Runs the tests. Starts [`BESIDE_TESTS`] once all tests are compiled.
fn tests_and_beside() -> Result<(), Failure> {
    let started = |error| Failure::Program(format!("cannot start cargo: {error}"));
    let mut tests = test_command().stderr(Stdio::piped()).spawn().map_err(started)?;
    let lines = tests.stderr.take().map(BufReader::new);
    let mut beside = None;
    for line in lines.into_iter().flat_map(BufReader::lines).map_while(Result::ok) {
        eprintln!("{line}");
        if beside.is_none() && line.trim_start().starts_with(TESTS_RUN) {
            beside = Some(Beside::start()?);
        }
    }
    let status = tests.wait().map_err(started)?;
    if !status.success() {
        return Err(Failure::Program(format!("cargo xtask test failed: {status}")));
    }
    beside.map_or(Ok(()), Beside::wait)
}

/// Steps that run concurrently with others, with their output in a file.
struct Beside {
    process: Child,
    log: PathBuf,
}

impl Beside {
    fn start() -> Result<Self, Failure> {
        let failed = |error| Failure::Program(format!("cannot start {}: {error}", BESIDE_TESTS.join(" ")));
        let log = root().join("target/beside-tests.log");
        let output = File::create(&log).map_err(failed)?;
        let mut steps = command("nice");
        steps.args(["-n", "19", "cargo", "xtask", "ci"]).args(BESIDE_TESTS).stdin(Stdio::null());
        steps.stderr(output.try_clone().map_err(failed)?).stdout(output);
        Ok(Self { process: steps.spawn().map_err(failed)?, log })
    }

    /// Waits for the end of the steps, and prints their output.
    fn wait(mut self) -> Result<(), Failure> {
        let status = self.process.wait();
        println!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        match status {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Failure::Program(format!("one of {} failed", BESIDE_TESTS.join(", ")))),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the fault and abuse tests on the binary that the step `tests` built, or on the one that `BULLA_BINARY` names. They print a
/// table.
fn abuse() -> Result<(), Failure> {
    const BATTERY: &str = "control::abuse::abuse_battery_passes";
    let mut battery = cargo(&["test", "-p", "bulla", "--test", "all", "--"]);
    run_command(battery.args([BATTERY, "--exact", "--ignored", "--nocapture"]))
}

/// Tests sources in clouds and clusters, and keys in clouds, against the simulated services of `fleet`.
fn features() -> Result<(), Failure> {
    let script = r#"
        source .ci/features
        cargo test "${FEATURES[@]}" --lib --test clouds --test key_services
        cargo test "${FEATURES[@]}" --test all -- cloud"#;
    run_command(command("bash").args(["-euo", "pipefail", "-c", script]))
}

fn fmt() -> Result<(), Failure> {
    run_command(&mut cargo(&["fmt", "--all", "--check"]))
}

/// Runs clippy on all crates and targets with the features of a release build; then on the code that differs without features, and
/// with each single feature.
fn clippy() -> Result<(), Failure> {
    let script = r#"
        source .ci/features
        lint() { cargo clippy "$@" -- -D warnings; }
        lint --workspace --all-targets "${FEATURES[@]: -2}"
        lint -p cloud_apis -p bulla
        for feature in aws azure gcp kubernetes; do lint -p cloud_apis --features "${feature}"; done"#;
    run_command(command("bash").args(["-euo", "pipefail", "-c", script]))
}

fn doc() -> Result<(), Failure> {
    run_command(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn deny() -> Result<(), Failure> {
    run_command(&mut cargo(&["deny", "check", "licenses", "bans", "sources"]))
}

/// Checks for known vulnerabilities. Without network access the database is not available, and the step reports no result.
fn advisories() -> Result<(), Failure> {
    let mut fetch = command("timeout");
    fetch.args([ADVISORY_FETCH_SECONDS_MAX, "cargo", "deny", "fetch", "db"]);
    if run_command(&mut fetch).is_err() {
        println!("NOT CHECKED: the RustSec advisory database could not be fetched from here.");
        println!("Run `cargo xtask ci advisories` where github.com can be reached.");
        return Ok(());
    }
    run_command(&mut cargo(&["deny", "check", "--disable-fetch", "advisories"]))
}

/// Builds and tests packages in each format, from the binary that the tests built. Needs root.
fn packages() -> Result<(), Failure> {
    run_command(command("bash").arg(".ci/packages"))
}

/// Runs interoperability tests with clients and servers that need another toolchain.
fn interop() -> Result<(), Failure> {
    run_command(command("bash").arg(".ci/interop"))
}
