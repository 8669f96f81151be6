//! Confirmation at the terminal before a permanent change.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::Args;

use crate::exit::{Outcome, Problem};

/// The flag of every command that asks for confirmation.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Consent {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Consent {
    /// Returns whether the flag was given.
    #[must_use]
    pub const fn is_given(self) -> bool {
        self.yes
    }

    /// Asks for confirmation at the terminal, unless the flag was given. Without a terminal, continues without confirmation.
    ///
    /// # Errors
    /// The answer was no, or there was no answer.
    pub fn confirm_at_terminal(self, question: &str) -> Outcome<()> {
        if self.yes || !std::io::stdin().is_terminal() {
            return Ok(());
        }
        confirm(question)
    }
}

/// Asks for confirmation at the terminal. Returns an error without a terminal, and for every answer but yes.
pub fn confirm(question: &str) -> Outcome<()> {
    if !std::io::stdin().is_terminal() {
        return Err(Problem::usage("no terminal to ask for confirmation")
            .hint("give --yes to continue without confirmation"));
    }
    let mut answer = String::new();
    let prompted = std::io::stderr()
        .write_all(format!("{question} [y/N] ").as_bytes())
        .and_then(|()| std::io::stdin().lock().read_line(&mut answer));
    prompted.map_err(|error| Problem::output(&error))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Problem::usage("nothing was changed")),
    }
}
