//! Options of every command.

use std::path::PathBuf;

use clap::Args;

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "General")]
pub struct Global {
    /// Configuration file (TOML) [default: ~/.config/bulla/bulla.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE", env = "BULLA_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// What to log on standard error: error, warn, info, debug, trace, or a filter like scan=debug
    // rustls warns of each peer that hangs up in its own way; among thousands that is noise.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "BULLA_LOG",
        hide_env_values = true,
        default_value = "warn,rustls=error"
    )]
    pub log: String,
    /// Log as JSON lines
    #[arg(long, global = true)]
    pub log_json: bool,
}
