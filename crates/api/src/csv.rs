//! Comma-separated values (RFC 4180), safe to open in a spreadsheet.

use std::io::{self, Write};

/// A writer of CSV records.
pub struct Csv<W: Write> {
    out: W,
    first: bool,
}

impl<W: Write> Csv<W> {
    /// Creates a CSV writer that writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, first: true }
    }

    fn separate(&mut self) -> io::Result<()> {
        if self.first {
            self.first = false;
            return Ok(());
        }
        self.out.write_all(b",")
    }

    /// Writes text that may come from other users. A text that a spreadsheet would execute as a formula gets a leading apostrophe.
    ///
    /// # Errors
    /// Fails if the writer fails.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.separate()?;
        let guard = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        if !guard && !text.contains([',', '"', '\r', '\n']) {
            return self.out.write_all(text.as_bytes());
        }
        let apostrophe = if guard { "'" } else { "" };
        write!(self.out, "\"{apostrophe}{}\"", text.replace('"', "\"\""))
    }

    /// Writes a number, or an empty field for `None`.
    ///
    /// # Errors
    /// Fails if the writer fails.
    pub fn number(&mut self, number: Option<impl Into<i64>>) -> io::Result<()> {
        self.separate()?;
        match number {
            Some(number) => write!(self.out, "{}", number.into()),
            None => Ok(()),
        }
    }

    /// Ends the record.
    ///
    /// # Errors
    /// Fails if the writer fails.
    pub fn end(&mut self) -> io::Result<()> {
        self.first = true;
        self.out.write_all(b"\r\n")
    }

    /// Writes a record of text fields.
    ///
    /// # Errors
    /// Fails if the writer fails.
    pub fn record<'t>(&mut self, fields: impl IntoIterator<Item = &'t str>) -> io::Result<()> {
        for field in fields {
            self.text(field)?;
        }
        self.end()
    }

    /// Returns the inner writer, which contains the records.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Flushes the writer.
    ///
    /// # Errors
    /// Fails if the writer fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: &[&str]) -> String {
        let mut out = Vec::new();
        Csv::new(&mut out).record(fields.iter().copied()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_fields_are_quoted_per_rfc_4180() {
        assert_eq!(line(&["a", "b c", ""]), "a,b c,\r\n");
        assert_eq!(
            line(&["a,b", "say \"hi\"", "two\nlines"]),
            "\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\"\r\n"
        );
    }

    #[test]
    fn csv_fields_with_formula_prefixes_are_escaped() {
        for evil in ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\tx", "\rx"] {
            assert!(line(&[evil]).starts_with("\"'"), "{evil:?}");
        }
        let mut out = Vec::new();
        Csv::new(&mut out).number(Some(-12)).unwrap();
        assert_eq!(out, b"-12", "our own negative numbers stay numbers");
    }
}
