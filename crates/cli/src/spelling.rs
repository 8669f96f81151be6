//! Command lines in other spellings. Renamed commands still work, with a warning; `help COMMAND` is `COMMAND --help`.

use std::ffi::OsString;

/// The old words of a command, and the new ones.
pub type RenamedCommand = (&'static [&'static str], &'static [&'static str]);

/// Global options that take a value.
const WITH_VALUE: [&str; 2] = ["--config", "--log"];

/// Returns the command line with a renamed command's old words replaced by the new ones, and the matching entry of `renamed`.
pub fn with_new_name(
    line: Vec<OsString>,
    renamed: &'static [RenamedCommand],
) -> (Vec<OsString>, Option<&'static RenamedCommand>) {
    let start = command_index(&line);
    let has = |old: &[&str]| {
        line.get(start..start + old.len())
            .is_some_and(|words| words.iter().zip(old).all(|(word, old)| word == *old))
    };
    let Some(entry) = renamed.iter().find(|(old, _)| has(old)) else { return (line, None) };
    let (old, new) = entry;
    let mut words = line[..start].to_vec();
    words.extend(new.iter().map(Into::into));
    words.extend_from_slice(&line[start + old.len()..]);
    (words, Some(entry))
}

/// Returns the command line with `help COMMAND…` replaced by `COMMAND… --help`. A command named `help` would be listed in the help
/// of each command.
pub fn with_help(mut line: Vec<OsString>) -> Vec<OsString> {
    let at = command_index(&line);
    if line.get(at).is_some_and(|word| word == "help") {
        line.remove(at);
        line.push("--help".into());
    }
    line
}

/// Returns the index of the command's name, after the program and its options.
fn command_index(line: &[OsString]) -> usize {
    let mut at = 1;
    while let Some(word) = line.get(at).and_then(|word| word.to_str()).filter(|word| word.starts_with('-')) {
        at += if WITH_VALUE.contains(&word) { 2 } else { 1 };
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENAMED: &[RenamedCommand] =
        &[(&["keys"], &["key"]), (&["key", "status"], &["key", "master", "status"])];

    fn of(line: &str) -> (String, bool) {
        let words = line.split(' ').map(OsString::from).collect();
        let (words, entry) = with_new_name(words, RENAMED);
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        (words.join(" "), entry.is_some())
    }

    #[test]
    fn help_of_a_command_can_be_written_before_it() {
        let of = |line: &str| {
            let words = with_help(line.split(' ').map(OsString::from).collect());
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("bulla help"), "bulla --help");
        assert_eq!(of("bulla --config help help cert create"), "bulla --config help cert create --help");
        for same in ["bulla", "bulla scan help", "bulla run -- help"] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn old_command_names_are_translated_only_in_command_position() {
        assert_eq!(of("bulla keys serve --listen keys"), ("bulla key serve --listen keys".to_owned(), true));
        assert_eq!(
            of("bulla --config keys --log-json key status --json"),
            ("bulla --config keys --log-json key master status --json".to_owned(), true)
        );
        for same in
            ["bulla", "bulla key", "bulla key list", "bulla scan keys", "bulla --config keys", "bulla --log"]
        {
            assert_eq!(of(same), (same.to_owned(), false));
        }
    }
}
