//! Output formats.

/// Format of the results.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Aligned columns for people, worst first
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line, as soon as a result arrives
    Jsonl,
    /// RFC 4180, one row per record
    Csv,
    /// One self-contained page with charts; scans only
    Html,
    /// One YAML document per row; not for scans
    Yaml,
    /// Names only, one per line; not for scans
    Name,
}
