//! The checks that every change must pass, in order, from a clean checkout. The first step that fails ends the run and is named.

use std::time::Instant;

use crate::setup;
use crate::shell::{Failure, cargo, command, output_of, run as run_command};

const CARGO_DENY_VERSION: &str = "0.20.2";
/// Seconds for the RustSec advisory database, which is a few megabytes.
const ADVISORY_FETCH_SECONDS_MAX: &str = "120";
/// Write points at which the crash tests kill the binary, before and after each. `BULLA_CRASHES=all` takes some twenty minutes.
const CRASH_POINTS: &str = "12";

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
    ("deny", deny),
    ("advisories", advisories),
    ("fuzz", fuzz),
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
        println!("\n== {name}");
        let step_started = Instant::now();
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

/// `cargo test --workspace`, with two threads a core: many tests wait for other programs more than they compute.
///
/// # Errors
/// A test failed, or does not compile.
pub(crate) fn test(arguments: &[String]) -> Result<(), Failure> {
    let mut tests = cargo(&["test"]);
    // `-p CRATE` chooses crates; cargo refuses it beside `--workspace`.
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
        // The batch kernel must run by the processor's own instructions where it has them, beside the model of them that runs everywhere.
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
        // It runs for seconds: compiling it with optimisation would take longer.
        let package = format!("cargo-deny@{CARGO_DENY_VERSION}");
        let mut install = cargo(&["install", "--debug", "--locked", &package]);
        run_command(install.env("CARGO_PROFILE_DEV_DEBUG", "none"))?;
    }
    run_command(&mut cargo(&["--version"]))?;
    run_command(&mut cargo(&["deny", "--version"]))
}

/// Fails where Cargo.lock does not fit the manifests, before another step mends it unseen.
fn lock() -> Result<(), Failure> {
    run_command(&mut cargo(&["fetch", "--locked"]))
}

/// The README's test command.
fn tests() -> Result<(), Failure> {
    let crashes = std::env::var("BULLA_CRASHES").unwrap_or_else(|_| CRASH_POINTS.to_owned());
    run_command(cargo(&["xtask", "test"]).env("BULLA_CRASHES", crashes))
}

/// The fault and abuse battery on the binary that the step `tests` built, or on the one that `BULLA_BINARY` names. It prints a table.
fn abuse() -> Result<(), Failure> {
    const BATTERY: &str = "control::abuse::the_battery";
    let mut battery = cargo(&["test", "-p", "bulla", "--test", "all", "--"]);
    run_command(battery.args([BATTERY, "--exact", "--ignored", "--nocapture"]))
}

/// What features bring: keys in a security module, on SoftHSM; sources in clouds and clusters and keys in clouds, against the
/// simulated ones of `fleet`.
fn features() -> Result<(), Failure> {
    let script = r#"
        source .ci/features
        cargo test "${FEATURES[@]}" --test clouds
        cargo test "${FEATURES[@]}" --lib --test all -- pkcs11 security_module cloud
        cargo clippy "${FEATURES[@]}" --all-targets -- -D warnings
        for feature in aws azure gcp; do cargo check -p keyless --features "${feature}"; done"#;
    run_command(command("bash").args(["-euo", "pipefail", "-c", script]))
}

fn fmt() -> Result<(), Failure> {
    run_command(&mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<(), Failure> {
    run_command(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn doc() -> Result<(), Failure> {
    run_command(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn deny() -> Result<(), Failure> {
    run_command(&mut cargo(&["deny", "check", "licenses", "bans", "sources"]))
}

/// Known vulnerabilities. The database is on the network; without it nothing is claimed.
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

/// Fuzz targets are outside the workspace, because they need a nightly compiler to run, but must go on compiling.
fn fuzz() -> Result<(), Failure> {
    run_command(&mut cargo(&["check", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target"]))
}

/// Packages of the binary that the tests built, in each format. Needs root.
fn packages() -> Result<(), Failure> {
    run_command(command("bash").arg(".ci/packages"))
}

/// Clients and servers that need another toolchain.
fn interop() -> Result<(), Failure> {
    run_command(command("bash").arg(".ci/interop"))
}
