//! Options that every command accepts: the configuration file and logging.

use std::path::PathBuf;

use clap::Args;

/// Global options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "General")]
pub struct GlobalArgs {
    /// Configuration file (TOML) [default: ~/.config/bulla/bulla.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE", env = "BULLA_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Log level for standard error: error, warn, info, debug, trace, or a filter such as scan=debug
    // rustls warns about each peer that closes the connection improperly. With thousands of peers this is noise.
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
