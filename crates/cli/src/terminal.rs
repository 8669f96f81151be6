//! The terminal: colours, width, and text without harmful characters.

use std::borrow::Cow;
use std::io::IsTerminal;

use comfy_table::{Attribute, Cell, Color};

/// When to colour the output (option `--color`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always, also in files and pipes
    Always,
    /// Never
    Never,
}

impl Colour {
    /// Returns whether to colour standard output (<https://no-color.org>).
    pub fn applies_to_stdout(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                !no && !dumb && std::io::stdout().is_terminal()
            }
        }
    }
}

/// Returns the number of columns of the terminal on standard output; `None` if it is a file or a pipe.
pub fn width() -> Option<u16> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    comfy_table::Table::new().width()
}

/// A painter that colours words, or leaves them unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Paint(
    /// Whether to use colour.
    pub bool,
);

impl Paint {
    /// Returns `text` with the escape sequence `code` (SGR parameters).
    fn sgr(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Returns `text` in bold.
    pub fn bold(self, text: &str) -> String {
        self.sgr("1", text)
    }

    /// Returns `text` in faint style.
    pub fn faint(self, text: &str) -> String {
        self.sgr("2", text)
    }

    /// Returns `text` in the color of a row's state.
    pub fn state(self, state: &str, text: &str) -> String {
        let code = match state {
            "critical" => "1;31",
            "high" => "31",
            "medium" => "33",
            "low" => "34",
            "no answer" => "35",
            "ok" => "32",
            _ => "2",
        };
        self.sgr(code, text)
    }

    /// Formats a table's cell in the colour of its row's state.
    pub fn cell(self, state: &str, text: &str) -> Cell {
        let cell = Cell::new(text);
        if !self.0 {
            return cell;
        }
        match state {
            "critical" => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
            "high" => cell.fg(Color::DarkRed),
            "medium" => cell.fg(Color::DarkYellow),
            "low" => cell.fg(Color::DarkBlue),
            "no answer" => cell.fg(Color::DarkMagenta),
            "ok" => cell.fg(Color::DarkGreen),
            "faint" => cell.add_attribute(Attribute::Dim),
            _ => cell,
        }
    }
}

/// Replaces control characters and bidirectional marks in text from the network or a file. Names in certificates, for example, are
/// untrusted.
pub fn clean(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(harmful) { Cow::Owned(text.replace(harmful, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Truncates `text` to at most `limit` characters. Truncated text ends with an ellipsis.
pub fn shorten(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => Cow::Borrowed(text),
        Some(_) => {
            let prefix: String = text.chars().take(limit.saturating_sub(1)).collect();
            Cow::Owned(format!("{prefix}…"))
        }
    }
}

/// Creates a table in the common style: without lines, with a bold heading, as wide as the terminal allows.
pub fn table(head: &[&str], paint: Paint, width: Option<u16>) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    match width {
        Some(width) => {
            table.set_width(width);
            table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
        }
        None => {
            table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
        }
    }
    if paint.0 {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    // An empty heading would be an empty line.
    if !head.is_empty() {
        table.set_header(head.iter().map(|title| {
            let cell = Cell::new(title);
            if paint.0 { cell.add_attribute(Attribute::Bold) } else { cell }
        }));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced_in_terminal_output() {
        assert_eq!(clean("plain"), "plain");
        assert_eq!(clean("a\x1b[2Jb\u{202e}c\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
    }

    #[test]
    fn table_without_a_heading_begins_with_its_first_row() {
        let mut shown = table(&[], Paint(false), None);
        shown.add_row(["a", "b"]);
        assert_eq!(shown.trim_fmt(), " a  b");
    }

    #[test]
    fn shortened_text_ends_with_an_ellipsis() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 3), "ab…");
    }
}
