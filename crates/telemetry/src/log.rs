//! Log lines on standard error.

use std::ffi::OsStr;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// A filter that `tracing` cannot parse.
#[derive(Debug)]
pub struct BadFilter(String);

impl std::fmt::Display for BadFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not a log filter: {} (examples: warn, info, scan=debug,outbound=trace)", self.0)
    }
}

impl std::error::Error for BadFilter {}

/// Format of the log: text or JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// Sends events that match `filter` to standard error. Text is coloured on a terminal, unless `NO_COLOR` is set
/// (<https://no-color.org>). Only the first call has an effect.
///
/// # Errors
/// `filter` cannot be parsed.
pub fn init(filter: &str, format: LogFormat) -> Result<(), BadFilter> {
    let filter = EnvFilter::try_new(filter).map_err(|error| BadFilter(error.to_string()))?;
    let colours = coloured(std::io::stderr().is_terminal(), std::env::var_os("NO_COLOR").as_deref());
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // An existing subscriber (in tests) is kept.
    let _ = match format {
        LogFormat::Json => lines.json().try_init(),
        LogFormat::Text => lines.try_init(),
    };
    Ok(())
}

/// Returns whether the log is colored. An empty `NO_COLOR` counts as unset.
fn coloured(on_terminal: bool, no_color: Option<&OsStr>) -> bool {
    on_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_used_only_on_a_terminal_without_no_color() {
        for (on_terminal, no_color, colours) in [
            (true, None, true),
            (true, Some(""), true),
            (true, Some("1"), false),
            (false, None, false),
            (false, Some(""), false),
            (false, Some("1"), false),
        ] {
            assert_eq!(
                coloured(on_terminal, no_color.map(OsStr::new)),
                colours,
                "{on_terminal} {no_color:?}"
            );
        }
    }
}
