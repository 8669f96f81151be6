//! Packages of a release: `.deb`, `.rpm`, a container image (OCI layout), a bill of materials (CycloneDX) and signed checksums.
//!
//! The formats' own programs (`dpkg-deb`, `rpmbuild`, GNU `tar`) build them from one folder of installed files. Packages are
//! reproducible: the same binary, sources and `SOURCE_DATE_EPOCH` give the same bytes.

mod checksums;
mod debian;
mod image;
mod minisign;
mod options;
mod release;
mod rpm;
mod sbom;
mod stage;

use std::path::PathBuf;

use crate::shell::{Failure, cargo, root, run as run_command};

use options::{Format, Options};
use release::{Release, recreate_folder};

const HELP: &str = "\
Makes the packages of a release.

Usage: cargo xtask dist [OPTION ...] [FORMAT ...]

Formats: deb rpm oci; all of them when none is named. A bill of materials and checksums are always written.

Options:
  --binary PATH    Package this binary. Default: build one with profile `dist` and every feature of a release
  --output FOLDER  Default: target/packages
  --version X      Default: the version of the workspace
  --key FILE       Sign the checksums with this Ed25519 key (PEM), for openssl and minisign. Default: they are not signed
  --fast           Compress little, for tests

Examples:
  cargo xtask dist --key release.key
  cargo xtask dist --binary target/debug/bulla --fast deb
";

/// Features of a released binary in addition to the defaults.
const FEATURES: &str = "bulla/aws,bulla/azure,bulla/gcp,bulla/kubernetes";

/// Builds the packages that `arguments` name.
///
/// # Errors
/// The arguments are wrong, a program is missing, or the build failed.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(arguments)?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build()?,
    };
    let work = options.output.join("work");
    recreate_folder(&work)?;
    let release = Release::new(&options, &work)?;
    stage::fill(&release, &binary)?;
    let mut made = vec![sbom::write(&release, FEATURES)?];
    for format in &options.formats {
        made.push(match format {
            Format::Deb => debian::write(&release)?,
            Format::Rpm => rpm::write(&release)?,
            Format::Oci => image::write(&release)?,
        });
    }
    made.extend(checksums::write(&release, &made, options.key.as_deref())?);
    release::remove(&work)?;
    for file in made {
        println!("{}", file.display());
    }
    Ok(())
}

fn build() -> Result<PathBuf, Failure> {
    run_command(&mut cargo(&[
        "build",
        "--locked",
        "--profile",
        "dist",
        "-p",
        "bulla",
        "--features",
        FEATURES,
    ]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("dist/bulla"))
}
