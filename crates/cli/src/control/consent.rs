//! Questions at the terminal before something is changed for good.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use crate::exit::{Outcome, Problem};

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
