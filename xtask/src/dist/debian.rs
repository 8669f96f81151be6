//! The `.deb` package, built with `dpkg-deb`.
//!
//! cargo-deb is not used: `dpkg-deb` exists wherever `.deb` files are tested and needs no compilation. The maintainer scripts are
//! files of this repository, which shellcheck and lintian check.

use std::path::PathBuf;

use crate::shell::{Failure, command, output_of, root, run as run_command};

use super::options::Compression;
use super::release::{self, DESCRIPTION, Release, SUMMARY, copy, files, make_parents};

fn write_control(release: &Release) -> Result<(), Failure> {
    let control = release.tree.join("DEBIAN");
    release::write(&control.join("control"), &fields(release)?, 0o644)?;
    let configuration: String =
        files(&release.tree.join("etc"))?.iter().map(|path| format!("/etc/{path}\n")).collect();
    release::write(&control.join("conffiles"), &configuration, 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&root().join("packaging/debian").join(script), &control.join(script), 0o755)?;
    }
    release::set_mode(&control, 0o755)
}

/// Writes the package and returns its path.
///
/// # Errors
/// `dpkg-deb` or `dpkg-shlibdeps` is missing or failed.
pub(super) fn write(release: &Release) -> Result<PathBuf, Failure> {
    write_control(release)?;
    let name = format!("bulla_{}_{}.deb", release.version, release.debian_architecture());
    let package = release.output.join(name);
    let compression: &[&str] = match release.compression {
        Compression::Small => &["-Zxz", "-z6"],
        Compression::Fast => &["-Zgzip", "-z1"],
    };
    let mut build = command("dpkg-deb");
    build.env("SOURCE_DATE_EPOCH", &release.epoch).args(compression).arg("--root-owner-group").arg("--build");
    run_command(build.arg(&release.tree).arg(&package))?;
    release::remove(&release.tree.join("DEBIAN"))?;
    Ok(package)
}

fn fields(release: &Release) -> Result<String, Failure> {
    let mut size = 0;
    for file in files(&release.tree)? {
        size +=
            std::fs::metadata(release.tree.join(&file)).map_or(0, |metadata| metadata.len().div_ceil(1024));
    }
    Ok(format!(
        "Package: bulla\nVersion: {}\nArchitecture: {}\nMaintainer: Bulla <bulla@localhost>\nInstalled-Size: {size}\n\
         Depends: {}, systemd | systemd-standalone-sysusers\nRecommends: ca-certificates\nSection: net\nPriority: optional\n\
         Description: {SUMMARY}\n {DESCRIPTION}\n",
        release.version,
        release.debian_architecture(),
        libraries(release)?,
    ))
}

/// Returns the packages of the shared libraries, with the versions that the binary's symbols require.
fn libraries(release: &Release) -> Result<String, Failure> {
    // `dpkg-shlibdeps` requires the structure of a source package.
    let around = release.work.join("shlibdeps");
    let source = around.join("debian/control");
    make_parents(&source)?;
    release::write(&source, "Source: bulla\n\nPackage: bulla\nArchitecture: any\n", 0o644)?;
    let mut find = command("dpkg-shlibdeps");
    find.current_dir(&around).arg("-O").arg("-e").arg(release.tree.join("usr/bin/bulla"));
    let found = output_of(&mut find).ok_or_else(|| {
        Failure::Program("dpkg-shlibdeps failed; `cargo xtask setup` installs it".to_owned())
    })?;
    let line = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(line.unwrap_or("libc6").to_owned())
}
