//! The files that `.deb` and `.rpm` install, at their paths below `/`.

use std::path::Path;

use crate::shell::{Failure, command, root, run as run_command};

use super::release::{self, Release, copy, list, make_parents, recreate_folder, set_folder_modes};

/// Completion scripts: the shell's name for `bulla completions`, and the path in distributions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/bulla"),
    ("zsh", "usr/share/zsh/site-functions/_bulla"),
    ("fish", "usr/share/fish/vendor_completions.d/bulla.fish"),
];

/// Folders of the repository, and the target paths of their files.
const FOLDERS: &[(&str, &str)] = &[
    ("packaging/systemd", "usr/lib/systemd/system"),
    ("packaging/sysusers", "usr/lib/sysusers.d"),
    ("packaging/config", "etc/bulla"),
    ("docs", "usr/share/doc/bulla"),
    ("docs/runbooks", "usr/share/doc/bulla/runbooks"),
    ("docs/prometheus", "usr/share/bulla/prometheus"),
    ("packaging/grafana", "usr/share/bulla/grafana"),
];

/// Fills the folder of installed files.
///
/// # Errors
/// The binary does not run here, or a file cannot be written.
pub(super) fn fill(release: &Release, binary: &Path) -> Result<(), Failure> {
    recreate_folder(&release.tree)?;
    let program = release.tree.join("usr/bin/bulla");
    make_parents(&program)?;
    // Most of a debug binary is function names. A release binary has none, so this does not change it.
    run_command(command("strip").args(["--strip-all", "-o"]).arg(&program).arg(binary))?;
    release::set_mode(&program, 0o755)?;
    for (from, to) in FOLDERS {
        copy_files(&root().join(from), &release.tree.join(to))?;
    }
    for name in ["README.md", "CHANGELOG.md", "LICENSE"] {
        copy(&root().join(name), &release.tree.join("usr/share/doc/bulla").join(name), 0o644)?;
    }
    release.write("usr/share/doc/bulla/copyright", &copyright(), 0o644)?;
    completions(release, &program)?;
    manual(release, &program)?;
    for (path, _) in release::PRIVATE_CONFIGURATION {
        release::set_mode(&release.tree.join(path), 0o640)?;
    }
    set_folder_modes(&release.tree)
}

fn copy_files(from: &Path, to: &Path) -> Result<(), Failure> {
    for path in list(from)?.into_iter().filter(|path| path.is_file()) {
        let name = path.file_name().unwrap_or_default();
        copy(&path, &to.join(name), 0o644)?;
    }
    Ok(())
}

fn completions(release: &Release, program: &Path) -> Result<(), Failure> {
    for (shell, path) in COMPLETIONS {
        let script =
            crate::shell::output_of(command(program).args(["completions", shell])).ok_or_else(|| {
                Failure::Program(format!("{} prints no completions for {shell}", program.display()))
            })?;
        release.write(path, &script, 0o644)?;
    }
    Ok(())
}

fn manual(release: &Release, program: &Path) -> Result<(), Failure> {
    let folder = release.tree.join("usr/share/man/man1");
    make_parents(&folder.join("bulla.1"))?;
    run_command(command(program).arg("man").arg(&folder))?;
    let pages = list(&folder)?;
    // Without time and file name, so that the output is reproducible.
    run_command(command("gzip").args(["-9", "--no-name"]).args(&pages))?;
    list(&folder)?.iter().try_for_each(|page| release::set_mode(page, 0o644))
}

/// Returns Debian's machine-readable copyright file, which includes the text of the licence.
fn copyright() -> String {
    "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: bulla\n\nFiles: *\n\
     Copyright: the authors of Bulla\nLicense: Apache-2.0\n\nLicense: Apache-2.0\n Debian has the text in \
     /usr/share/common-licenses/Apache-2.0; it is also in\n /usr/share/doc/bulla/LICENSE.\n"
        .to_owned()
}
