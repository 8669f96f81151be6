//! Reads a password from the terminal, without echo, or from standard input.

use std::io::{BufRead, IsTerminal as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::exit::{Exit, Outcome, Problem};

/// Maximum bytes of the line that contains a password.
const LINE_MAX: u64 = 4_096;

/// A terminal without echo. The former mode is restored on drop.
struct NoEchoTerminal(Termios);

impl NoEchoTerminal {
    /// Disables the terminal's echo.
    fn new() -> std::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        hidden.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for NoEchoTerminal {
    fn drop(&mut self) {
        // A failure cannot be reported here.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Reads a new password: twice from a terminal, else the first line of standard input.
pub(super) fn read() -> Outcome<Zeroizing<String>> {
    if !std::io::stdin().is_terminal() {
        return line(std::io::stdin().lock());
    }
    let hidden = NoEchoTerminal::new().map_err(|error| {
        Problem::new(Exit::Machine, format_args!("the terminal cannot hide a password: {error}"))
    })?;
    let first = read_password("new password: ")?;
    let second = read_password("once more: ")?;
    drop(hidden);
    if *first != *second {
        return Err(
            Problem::usage("the two passwords differ: nothing was changed").hint("run the command again")
        );
    }
    Ok(first)
}

fn read_password(prompt: &str) -> Outcome<Zeroizing<String>> {
    eprint!("{prompt}");
    std::io::stderr().flush().map_err(|error| Problem::output(&error))?;
    line(std::io::stdin().lock())
}

fn line(from: impl BufRead) -> Outcome<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::with_capacity(LINE_MAX as usize));
    let read = from.take(LINE_MAX).read_line(&mut text);
    read.map_err(|error| Problem::usage(format_args!("cannot read the password: {error}")))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(
            Problem::usage("no password on standard input").hint("type the password, or give it as one line")
        );
    }
    Ok(Zeroizing::new(password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_the_first_line_of_the_input() {
        for (text, password) in [("a b c\n", "a b c"), ("a\r\nb\n", "a"), (" a ", " a ")] {
            assert_eq!(line(text.as_bytes()).unwrap().as_str(), password);
        }
        assert!(line(&b""[..]).is_err() && line(&b"\n"[..]).is_err());
    }
}
