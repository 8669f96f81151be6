//! Log lines on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// A filter that `tracing` does not understand.
#[derive(Debug)]
pub struct BadFilter(String);

impl std::fmt::Display for BadFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not a log filter: {} (examples: warn, info, scan=debug,outbound=trace)", self.0)
    }
}

impl std::error::Error for BadFilter {}

/// Sends events that pass `filter` to standard error, as text or as a JSON object a line. The first
/// call decides; later ones change nothing.
///
/// # Errors
/// When `filter` does not parse.
pub fn init(filter: &str, json: bool) -> Result<(), BadFilter> {
    let filter = EnvFilter::try_new(filter).map_err(|error| BadFilter(error.to_string()))?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A subscriber that stands already (in tests) stays.
    let _ = if json { lines.json().try_init() } else { lines.try_init() };
    Ok(())
}
