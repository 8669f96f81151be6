//! A list kept in one text column.

/// A list kept in one text column, one a line.
pub(super) fn lines(all: &[String]) -> String {
    all.join("\n")
}

/// From [`lines`].
pub(super) fn from_lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
