//! Questions at the terminal before something is changed for good.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::Args;

use crate::exit::{Outcome, Problem};

/// The flag of every command that asks before it goes on.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Consent {
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Consent {
    /// Whether the command line said yes.
    #[must_use]
    pub const fn is_given(self) -> bool {
        self.yes
    }

    /// Asks the person at the terminal, unless the command line said yes. Without a terminal nobody is asked, and it goes on.
    ///
    /// # Errors
    /// The answer was no, or there was none.
    pub fn ask_at_terminal(self, question: &str) -> Outcome<()> {
        if self.yes || !std::io::stdin().is_terminal() {
            return Ok(());
        }
        confirm(question)
    }
}

/// Asks the person at the terminal. Returns an error without a terminal, and for every answer but yes.
pub fn confirm(question: &str) -> Outcome<()> {
    if !std::io::stdin().is_terminal() {
        return Err(
            Problem::usage("nobody is there to be asked").hint("give --yes to go on without a question")
        );
    }
    let mut answer = String::new();
    let asked = std::io::stderr()
        .write_all(format!("{question} [y/N] ").as_bytes())
        .and_then(|()| std::io::stdin().lock().read_line(&mut answer));
    asked.map_err(|error| Problem::output(&error))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Problem::usage("nothing was changed")),
    }
}
