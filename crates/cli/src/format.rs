//! The option `--output` and the output formats.

use clap::Args;

use crate::exit::{Outcome, Problem};

/// Output format of a command, chosen by `--output`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for people, worst first
    #[default]
    Table,
    /// A table with all columns, whatever the width of the terminal
    Wide,
    /// One JSON document
    Json,
    /// One JSON document per line, as soon as a result arrives
    Jsonl,
    /// RFC 4180, one row per record
    Csv,
    /// One YAML document per row
    Yaml,
    /// Names only, one per line
    Name,
}

/// Output of a command that prints text for people, or one JSON document.
#[derive(Args, Clone, Copy, Debug)]
pub struct TableOrJson {
    /// Output format: table or json
    #[arg(
        long,
        short,
        value_enum,
        value_name = "FORMAT",
        default_value = "table",
        hide_possible_values = true
    )]
    output: Format,
    /// Print JSON: the same as --output json
    #[arg(long)]
    json: bool,
}

impl TableOrJson {
    /// Returns whether to print JSON.
    ///
    /// # Errors
    /// Another format was chosen.
    pub fn is_json(self) -> Outcome<bool> {
        match self.output {
            _ if self.json => Ok(true),
            Format::Table => Ok(false),
            Format::Json => Ok(true),
            _ => Err(Problem::usage("this command prints a table or JSON")
                .hint("give --output table or --output json")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        format: TableOrJson,
    }

    #[test]
    fn json_is_chosen_by_either_flag() {
        let is_json = |arguments: &[&str]| {
            let line = Line::try_parse_from([&["x"], arguments].concat()).unwrap();
            line.format.is_json()
        };
        assert!(!is_json(&[]).unwrap() && !is_json(&["--output", "table"]).unwrap());
        assert!(is_json(&["--json"]).unwrap() && is_json(&["-o", "json"]).unwrap());
        assert_eq!(is_json(&["--output", "csv"]).unwrap_err().exit, crate::exit::Exit::Usage);
    }
}
