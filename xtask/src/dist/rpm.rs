//! The `.rpm` package, built with `rpmbuild`, which determines the libraries and symbol versions that the binary needs.

use std::path::PathBuf;

use crate::shell::{Failure, command, root, run as run_command};

use super::options::Compression;
use super::release::{self, DESCRIPTION, PRIVATE_CONFIGURATION, Release, SUMMARY, files, list};

/// Writes the package and returns its path.
///
/// # Errors
/// `rpmbuild` is missing or failed.
pub(super) fn write(release: &Release) -> Result<PathBuf, Failure> {
    let top = release.work.join("rpm");
    release::recreate_folder(&top)?;
    let spec = top.join("bulla.spec");
    release::write(&spec, &text(release)?, 0o644)?;
    let payload = match release.compression {
        Compression::Small => "_binary_payload w19.zstdio",
        Compression::Fast => "_binary_payload w1.zstdio",
    };
    let mut build = command("rpmbuild");
    build.env("SOURCE_DATE_EPOCH", &release.epoch).args(["--quiet", "-bb", "--build-in-place"]);
    let folder = format!("_topdir {}", top.display());
    let database = format!("_dbpath {}", top.join("db").display());
    for define in [
        folder.as_str(),
        database.as_str(),
        payload,
        "_buildhost reproducible",
        "use_source_date_epoch_as_buildtime 1",
        "clamp_mtime_to_source_date_epoch 1",
        "_build_id_links none",
        "debug_package %{nil}",
        "__os_install_post %{nil}",
    ] {
        build.args(["--define", define]);
    }
    run_command(build.arg(&spec))?;
    let folder = top.join("RPMS").join(std::env::consts::ARCH);
    let made = list(&folder)?;
    let package = made
        .first()
        .ok_or_else(|| Failure::Program(format!("rpmbuild left nothing in {}", folder.display())))?;
    let target = release.output.join(package.file_name().unwrap_or_default());
    release::copy(package, &target, 0o644)?;
    Ok(target)
}

fn text(release: &Release) -> Result<String, Failure> {
    let scripts = release::read(&root().join("packaging/rpm/scripts"))?;
    Ok(format!(
        "Name: bulla\nVersion: {version}\nRelease: 1\nSummary: {SUMMARY}\nLicense: Apache-2.0\n\
         Requires(pre): /usr/sbin/useradd\nRequires: systemd\nRecommends: ca-certificates\n\n\
         %description\n{DESCRIPTION}\n\n%install\ncp -a {tree}/. %{{buildroot}}\n\n{scripts}\n%files\n{files}\n",
        version = release.version,
        tree = release.tree.display(),
        files = listed(release)?.join("\n"),
    ))
}

/// Returns the lines of `%files`. Edited configuration files are kept at upgrades.
fn listed(release: &Release) -> Result<Vec<String>, Failure> {
    let mut lines = vec!["%dir %attr(0755,root,root) /etc/bulla".to_owned()];
    for path in files(&release.tree)? {
        let group =
            PRIVATE_CONFIGURATION.iter().find(|(private, _)| *private == path).map(|(_, group)| *group);
        lines.push(match group {
            Some(group) => format!("%config(noreplace) %attr(0640,root,{group}) /{path}"),
            None if path.starts_with("etc/") => format!("%config(noreplace) %attr(0644,root,root) /{path}"),
            None if path.starts_with("usr/bin/") => format!("%attr(0755,root,root) /{path}"),
            None => format!("%attr(0644,root,root) /{path}"),
        });
    }
    Ok(lines)
}
