//! Completion scripts and manual pages, generated from a command line.

use std::path::Path;

use crate::exit::{Exit, Outcome, Problem, print};

/// Prints the completion script of `command` for `shell`.
pub fn completions(shell: clap_complete::Shell, mut command: clap::Command) -> Outcome<Exit> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Ok)
}

/// Writes a manual page for each subcommand of `command` into `folder`.
pub fn man(folder: &Path, command: clap::Command) -> Outcome<Exit> {
    std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder)).map_err(
        |error| {
            Problem::new(Exit::Machine, format_args!("cannot write into {}: {error}", folder.display()))
                .hint("choose a folder that you may write to")
        },
    )?;
    Ok(Exit::Ok)
}
