//! Files in the repository that a test generates.

use std::path::Path;

/// Environment variable with which tests write generated files instead of comparing them.
const REGENERATE: &str = "BULLA_REGENERATE";

/// Compares a file with the text that it should have, or writes the text. `command` runs the test that generates the file.
///
/// # Panics
/// The file has another text, or cannot be written.
pub fn check_generated(file: &Path, text: &str, command: &str) {
    if std::env::var_os(REGENERATE).is_some() {
        std::fs::write(file, text).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(written == text, "{} is out of date: run `{REGENERATE}=1 {command}`", file.display());
}
