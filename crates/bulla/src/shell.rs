//! Completions and manual pages, made from the command line itself.

use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{Exit, Outcome, Problem};

/// Prints the completion script for `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Outcome<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "bulla", &mut script);
    crate::print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Ok)
}

/// Writes a page a command into `folder`.
pub(crate) fn man(folder: &Path) -> Outcome<Exit> {
    std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder)).map_err(
        |error| {
            Problem::new(Exit::Machine, format_args!("cannot write into {}: {error}", folder.display()))
                .hint("choose a folder that you may write to")
        },
    )?;
    Ok(Exit::Ok)
}
