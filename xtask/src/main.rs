//! `cargo xtask`: one entry point for all developer tasks.
//!
//! | command | what it does |
//! | --- | --- |
//! | `setup` | installs the Debian packages and Rust components that building and testing need |
//! | `test [ARGUMENT …]` | `setup`, then `cargo test --workspace ARGUMENT …` |
//! | `ci [STEP …]` | the checks that every change must pass, or only the named ones |
//! | `bench [NAME [ARGUMENT …]]` | runs one benchmark, or lists all benchmarks |
//! | `dist [OPTION …] [FORMAT …]` | builds the packages of a release |
//! | `docs` | builds the site of the documentation, and checks its links |

mod bench;
mod ci;
mod dist;
mod docs;
mod kernels;
mod memory;
mod setup;
mod shell;

use std::process::ExitCode;

use shell::Failure;

const HELP: &str = "\
Sets up a machine, runs the tests, the checks of a change and the benchmarks, and makes packages.

Usage: cargo xtask COMMAND

Commands:
  setup                      Install the packages and Rust components that building and testing need
  test [ARGUMENT ...]        Set up, then run `cargo test --workspace ARGUMENT ...`
  ci [STEP ...]              Run every check that a change must pass, or only the named steps
  bench [NAME [ARGUMENT ...]]  Run one benchmark; without a name list them
  dist [OPTION ...] [FORMAT ...]  Make the packages of a release: deb, rpm, oci
  docs                       Make the site of the documentation, and check its links

Examples:
  cargo xtask test                          # everything
  cargo xtask test -p flight                # one crate
  cargo xtask test --test all certbot       # tests whose name contains `certbot`
  cargo xtask ci fmt clippy
  cargo xtask bench signing
  cargo xtask dist deb
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            failure.exit_code()
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let Some((command, rest)) = arguments.split_first() else {
        print!("{HELP}");
        return Err(Failure::Usage("name a command".to_owned()));
    };
    match command.as_str() {
        "setup" if rest.is_empty() => setup::run(),
        "setup" => Err(Failure::Usage("`setup` takes no arguments".to_owned())),
        "test" => {
            setup::run()?;
            ci::test(rest)
        }
        "ci" => ci::run(rest),
        "bench" => bench::run(rest),
        "dist" => dist::run(rest),
        "docs" => docs::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(Failure::Usage(format!("unknown command `{other}`; see `cargo xtask help`"))),
    }
}
