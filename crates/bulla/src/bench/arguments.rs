//! The arguments of `bulla bench scan`.

use clap::Args;

use discover::fleet_command::LatencyArg;

/// Arguments of `bulla bench scan`.
#[derive(Args, Debug)]
pub(crate) struct ScanBench {
    /// Number of endpoints
    #[arg(long, value_name = "COUNT", default_value_t = 1_800)]
    pub(super) endpoints: usize,
    /// Latency of DNS, connections and handshakes
    #[arg(long, value_enum, value_name = "KIND", default_value = "certpulse")]
    pub(super) latency: LatencyArg,
    /// Kinds of endpoints: all, healthy or demo
    #[arg(long, value_name = "KIND", default_value = "all")]
    pub(super) mix: String,
    /// Fraction of dead endpoints, from 0 to 1
    #[arg(long, value_name = "FRACTION", default_value_t = 0.05)]
    pub(super) dead: f64,
    /// Simulate this many names behind one address instead
    #[arg(long, value_name = "NAMES")]
    pub(super) balancer: Option<usize>,
    /// Number of runs of Bulla; the output has a row for each run
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(super) runs: usize,
    /// Also run tlsx and zgrab2, if they are installed
    #[arg(long)]
    pub(super) peers: bool,
    /// Further arguments for `bulla scan`
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(super) scan_arguments: Vec<String>,
}
