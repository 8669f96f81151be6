//! Formats of output.

/// How results are written.
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
    /// One JSON document a line, as results come
    Jsonl,
    /// RFC 4180, one row a record
    Csv,
    /// One self-contained page with charts; scans only
    Html,
    /// One YAML document a row; not for scans
    Yaml,
    /// Names only, one a line; not for scans
    Name,
}
