//! The checks that every change must pass, in order, from a clean checkout. The run stops at the first failed step and reports it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::memory::TemporaryFolder;
use crate::setup;
use crate::shell::{Failure, cargo, command, output_of, root, run as run_command};

const CARGO_DENY_VERSION: &str = "0.20.2";
/// Timeout in seconds for downloading the RustSec advisory database, which is a few megabytes.
const ADVISORY_FETCH_SECONDS_MAX: &str = "120";
/// Number of write points at which the crash tests kill the binary, before and after each. `BULLA_CRASHES=all` takes about twenty
/// minutes.
const CRASH_POINTS: &str = "12";

/// Output of cargo after it has compiled, when it starts to run tests. From then on cargo holds no lock on the target folder.
const TESTS_RUN: &str = "Running ";

type Step = (&'static str, fn() -> Result<(), Failure>);

const STEPS: &[Step] = &[
    ("tools", tools),
    ("lock", lock),
    ("tests", tests),
    ("interop-tools", interop_tools),
    ("clippy", clippy),
    ("doc", doc),
    ("fmt", fmt),
    ("site", crate::docs::run_if_installed),
    ("deny", deny),
    ("advisories", advisories),
    ("abuse", abuse),
    ("kernels", crate::kernels::run),
    ("packages", packages),
    ("interop", interop),
    ("console", console),
    ("features", features),
];

/// Part of a full run. Its `steps` run in order. The steps of `concurrent` run concurrently with `steps`, also in order, so that the
/// processors have work while tests wait for other programs and timers.
struct Phase {
    steps: &'static [&'static str],
    concurrent: &'static [&'static str],
    /// Niceness of the steps of `concurrent`.
    niceness: &'static str,
}

const PHASES: &[Phase] = &[
    Phase { steps: &["tools", "lock"], concurrent: &[], niceness: "0" },
    Phase {
        steps: &["tests"],
        concurrent: &["interop-tools", "clippy", "doc", "fmt", "site", "deny", "advisories"],
        niceness: "19",
    },
    Phase { steps: &["abuse", "kernels"], concurrent: &[], niceness: "0" },
    // `features` last: it replaces the binary that the other steps use.
    Phase { steps: &["packages", "interop", "features"], concurrent: &["console"], niceness: "0" },
];

/// Runs the named steps, or all of them.
///
/// # Errors
/// A name is unknown, or a step failed.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    let started = Instant::now();
    if names.is_empty() {
        for phase in PHASES {
            run_phase(phase)?;
        }
    } else {
        for step in chosen(names)? {
            run_step(step)?;
        }
    }
    println!("\n== all passed in {} s", started.elapsed().as_secs());
    Ok(())
}

fn run_phase(phase: &Phase) -> Result<(), Failure> {
    if phase.steps == ["tests"] {
        return timed("tests", || tests_with_concurrent_steps(phase));
    }
    let concurrent = if phase.concurrent.is_empty() { None } else { Some(ConcurrentSteps::start(phase)?) };
    for name in phase.steps {
        run_step(find(name)?)?;
    }
    concurrent.map_or(Ok(()), ConcurrentSteps::wait)
}

fn run_step((name, step): &Step) -> Result<(), Failure> {
    timed(name, step)
}

fn timed(name: &str, step: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    println!("\n== {name}");
    let started = Instant::now();
    step().map_err(|failure| Failure::Program(format!("step {name} failed: {failure}")))?;
    println!("== {name}: {} s", started.elapsed().as_secs());
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Step>, Failure> {
    names.iter().map(|name| find(name)).collect()
}

fn find(name: &str) -> Result<&'static Step, Failure> {
    STEPS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let known: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        Failure::Usage(format!("unknown step `{name}`; the steps are: {}", known.join(" ")))
    })
}

/// Options of `cargo test` that select targets.
const TARGET_OPTIONS: &[&str] =
    &["--lib", "--bin", "--bins", "--test", "--tests", "--example", "--examples", "--doc", "--all-targets"];

/// Runs `cargo test --workspace` with two threads per core, because many tests mostly wait for other programs. Without a selection
/// of targets it leaves out the examples, which are benchmarks: clippy compiles them, and linking them takes minutes.
///
/// # Errors
/// A test failed, or does not compile.
pub(crate) fn test(arguments: &[String]) -> Result<(), Failure> {
    let temporary = TemporaryFolder::in_memory();
    let run = |targets: &[&str]| run_command(&mut tests_of(targets, arguments, temporary.as_ref()));
    let options = arguments.iter().take_while(|argument| *argument != "--");
    let mut names = options.map(|option| option.split('=').next().unwrap_or(option));
    if names.any(|name| TARGET_OPTIONS.contains(&name)) {
        return run(&[]);
    }
    let tests = run(&["--tests"]);
    if tests.is_err() && !arguments.iter().any(|argument| argument == "--no-fail-fast") {
        return tests;
    }
    // Of the whole workspace, not of the few crates with examples: Cargo would choose other features of dependencies for these, and
    // compile most crates again. It skips crates with `doctest = false`.
    tests.and(run(&["--doc"]))
}

/// Returns whether arguments contain `-p CRATE`.
fn chooses_crates(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument == "-p" || argument.starts_with("--package"))
}

fn tests_of(targets: &[&str], arguments: &[String], temporary: Option<&TemporaryFolder>) -> Command {
    let mut tests = cargo(&["test"]);
    // cargo rejects `-p CRATE` together with `--workspace`.
    if !chooses_crates(arguments) {
        tests.arg("--workspace");
    }
    tests.args(targets).args(arguments);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        tests.env("RUST_TEST_THREADS", (2 * cores).to_string());
    }
    if let Some(folder) = temporary {
        tests.env("TMPDIR", &folder.path);
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
    tests
}

fn has_ifma() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("avx512ifma"))
}

fn tools() -> Result<(), Failure> {
    setup::run()?;
    run_command(&mut cargo(&["--version"]))
}

fn install_cargo_deny() -> Result<(), Failure> {
    let installed = output_of(&mut cargo(&["deny", "--version"])).unwrap_or_default();
    if installed.trim() == format!("cargo-deny {CARGO_DENY_VERSION}") {
        return Ok(());
    }
    // cargo-deny runs for seconds only, so an optimised build would take longer in total.
    let package = format!("cargo-deny@{CARGO_DENY_VERSION}");
    let mut install = cargo(&["install", "--debug", "--locked", &package]);
    run_command(install.env("CARGO_PROFILE_DEV_DEBUG", "none"))
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

/// Runs the tests. Starts the steps of `concurrent` once all tests are compiled.
fn tests_with_concurrent_steps(phase: &Phase) -> Result<(), Failure> {
    let started = |error| Failure::Program(format!("cannot start cargo: {error}"));
    let mut tests = test_command().stderr(Stdio::piped()).spawn().map_err(started)?;
    let lines = tests.stderr.take().map(BufReader::new);
    let mut concurrent = None;
    for line in lines.into_iter().flat_map(BufReader::lines).map_while(Result::ok) {
        eprintln!("{line}");
        if concurrent.is_none() && line.trim_start().starts_with(TESTS_RUN) {
            concurrent = Some(ConcurrentSteps::start(phase)?);
        }
    }
    let status = tests.wait().map_err(started)?;
    if !status.success() {
        return Err(Failure::Program(format!("cargo xtask test failed: {status}")));
    }
    concurrent.map_or(Ok(()), ConcurrentSteps::wait)
}

/// Steps that run concurrently with others, with their output in a file. Dropping it ends them.
struct ConcurrentSteps {
    names: String,
    process: Child,
    log: PathBuf,
}

impl ConcurrentSteps {
    fn start(phase: &Phase) -> Result<Self, Failure> {
        let names = phase.concurrent.join(" ");
        let failed = |error| Failure::Program(format!("cannot start {names}: {error}"));
        let log = root().join(format!("target/beside-{}.log", phase.steps[0]));
        let output = File::create(&log).map_err(failed)?;
        let mut steps = command("nice");
        steps
            .args(["-n", phase.niceness, "cargo", "xtask", "ci"])
            .args(phase.concurrent)
            .stdin(Stdio::null());
        steps.stderr(output.try_clone().map_err(failed)?).stdout(output).process_group(0);
        let process = steps.spawn().map_err(failed)?;
        Ok(Self { names, process, log })
    }

    /// Waits for the end of the steps, and prints their output.
    fn wait(mut self) -> Result<(), Failure> {
        let status = self.process.wait();
        println!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        match status {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Failure::Program(format!("one of these steps failed: {}", self.names))),
        }
    }
}

impl Drop for ConcurrentSteps {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let group = format!("-{}", self.process.id());
            let _ = command("kill").args(["-TERM", "--", &group]).status();
            let _ = self.process.wait();
        }
    }
}

/// Runs the fault and abuse tests, which print a table. They test the binary that the step `tests` built, or the one that
/// `BULLA_BINARY` names.
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
        # With the targets, and so with the features, of the tests: the other crates are not checked again.
        lint -p cloud_apis -p bulla --all-targets
        for feature in aws azure gcp kubernetes; do lint -p cloud_apis --all-targets --features "${feature}"; done"#;
    run_command(command("bash").args(["-euo", "pipefail", "-c", script]))
}

fn doc() -> Result<(), Failure> {
    run_command(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn deny() -> Result<(), Failure> {
    install_cargo_deny()?;
    run_command(&mut cargo(&["deny", "check", "licenses", "bans", "sources"]))
}

/// Checks for known vulnerabilities. Without network access the database is not available, and the step reports no result.
fn advisories() -> Result<(), Failure> {
    install_cargo_deny()?;
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

/// Installs the clients and servers of `interop` and `console`. Most of the time is spent on compiling Go programs.
fn interop_tools() -> Result<(), Failure> {
    run_command(command("bash").args([".ci/interop", "--tools"]))
}

/// Runs interoperability tests with clients and servers that need another toolchain.
fn interop() -> Result<(), Failure> {
    run_command(command("bash").arg(".ci/interop"))
}

/// Tests the pages of the web console in a browser.
fn console() -> Result<(), Failure> {
    run_command(command("bash").args([".ci/interop", "console"]))
}
