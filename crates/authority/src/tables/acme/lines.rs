//! Encoding of a list of strings in one text column, one item on each line.

/// Encodes a list for one text column, with one item on each line.
pub(super) fn lines(all: &[String]) -> String {
    all.join("\n")
}

/// Decodes the output of [`lines`].
pub(super) fn from_lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
