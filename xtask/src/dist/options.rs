//! The command line of `cargo xtask dist`.

use std::path::PathBuf;

use crate::shell::{Failure, root};

/// Formats of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Debian and Ubuntu.
    Deb,
    /// Fedora, RHEL, SUSE.
    Rpm,
    /// Containers: an OCI image layout, as a tar file.
    Oci,
}

/// Compression level of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Small,
    Fast,
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) binary: Option<PathBuf>,
    pub(super) output: PathBuf,
    pub(super) version: String,
    /// Ed25519 private key that signs the checksums, PEM.
    pub(super) key: Option<PathBuf>,
    pub(super) compression: Compression,
    pub(super) formats: Vec<Format>,
}

impl Options {
    /// Parses the options.
    ///
    /// # Errors
    /// An option is unknown or lacks its value.
    pub(super) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self {
            binary: None,
            output: root().join("target/packages"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            key: None,
            compression: Compression::Small,
            formats: Vec::new(),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || {
                rest.next()
                    .ok_or_else(|| Failure::Usage(format!("{argument} needs a value; see dist --help")))
            };
            match argument.as_str() {
                "--binary" => options.binary = Some(absolute(value()?)),
                "--output" => options.output = absolute(value()?),
                "--version" => options.version = version(value()?)?,
                "--key" => options.key = Some(absolute(value()?)),
                "--fast" => options.compression = Compression::Fast,
                "deb" => options.formats.push(Format::Deb),
                "rpm" => options.formats.push(Format::Rpm),
                "oci" => options.formats.push(Format::Oci),
                other => return Err(Failure::Usage(format!("unknown `{other}`; see dist --help"))),
            }
        }
        if options.formats.is_empty() {
            options.formats = vec![Format::Deb, Format::Rpm, Format::Oci];
        }
        Ok(options)
    }
}

/// Makes a path absolute. Commands of `xtask` run in the root of the repository, but paths are relative to the caller's folder.
fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// Checks a version, which must be the same text in every format. `-` and `~` have special meanings in `.deb` and `.rpm`.
fn version(text: &str) -> Result<String, Failure> {
    let fits = text.split('.').count() == 3
        && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if fits {
        Ok(text.to_owned())
    } else {
        Err(Failure::Usage(format!("version `{text}` is not of the form MAJOR.MINOR.PATCH")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Failure> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_formats_are_built_by_default() {
        let options = parse("").expect("no arguments are needed");
        assert_eq!(options.formats, [Format::Deb, Format::Rpm, Format::Oci]);
        assert_eq!(options.compression, Compression::Small);
        assert!(options.key.is_none());
    }

    #[test]
    fn formats_and_options_are_accepted_in_any_order() {
        let options = parse("deb --fast --version 1.2.3 rpm").expect("fits");
        assert_eq!(options.formats, [Format::Deb, Format::Rpm]);
        assert_eq!(options.version, "1.2.3");
        assert_eq!(options.compression, Compression::Fast);
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for line in ["--binary", "zip", "--version 1.2", "--version 1.2.3-rc1", "--version 1..3"] {
            assert!(matches!(parse(line), Err(Failure::Usage(_))), "{line}");
        }
    }
}
