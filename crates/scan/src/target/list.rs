//! Reads targets one at a time from arguments, files and standard input.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::Target;
use super::error::{TargetError, TargetOrigin, TargetProblem};
use super::expand::{Expansion, TargetOptions};
use super::parse::{Spec, spec};

/// Maximum bytes of a line, far more than a scheme, a name of 253 bytes, a port and a dozen server names need.
const LINE_MAX: usize = 16_384;

/// Lazy iterator over the targets of a command line. Lists are read on demand.
///
/// An invalid target yields an error. The iterator then continues with the next target.
pub struct Targets {
    arguments: std::vec::IntoIter<OsString>,
    options: TargetOptions,
    standard_input: Option<Box<dyn BufRead + Send>>,
    list: Option<List>,
    current: Option<Expansion>,
    network_only: bool,
}

impl Targets {
    /// Creates the iterator for the targets in `arguments`; `-` reads standard input.
    pub fn new<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>, options: TargetOptions) -> Self {
        Self::with_input(arguments, options, Box::new(BufReader::new(io::stdin())))
    }

    /// Like [`Targets::new`], but `-` reads from `input` instead of standard input.
    pub fn with_input<A: Into<OsString>>(
        arguments: impl IntoIterator<Item = A>,
        options: TargetOptions,
        standard_input: Box<dyn BufRead + Send>,
    ) -> Self {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        Self {
            arguments: arguments.into_iter(),
            options,
            standard_input: Some(standard_input),
            list: None,
            current: None,
            network_only: false,
        }
    }

    /// Creates the iterator for network targets only. Files, lists and standard input are rejected. Does not access the file system.
    ///
    /// # Errors
    /// The first text that is invalid, or not a network target.
    pub fn of_network(texts: &[String], options: TargetOptions) -> Result<Self, TargetError> {
        for text in texts {
            let of_network = match spec(text) {
                Ok(Spec::Endpoints(endpoints)) => Expansion::new(endpoints, &options).map(drop),
                Ok(Spec::Path(_) | Spec::List(_) | Spec::StandardInput) => Err(TargetProblem::NotOfNetwork),
                Err(problem) => Err(problem),
            };
            of_network.map_err(|problem| TargetError::new(TargetOrigin::Argument, text, problem))?;
        }
        let nothing = Box::new(io::empty());
        Ok(Self { network_only: true, ..Self::with_input(texts, options, nothing) })
    }

    /// Returns the number of remaining targets. `None` if lists or folders would have to be read to count them.
    #[must_use]
    pub fn expected(&self) -> Option<u64> {
        if self.list.is_some() {
            return None;
        }
        let begun = self.current.as_ref().map_or(0, Expansion::left);
        self.arguments.as_slice().iter().try_fold(begun, |sum, argument| {
            let more = match self.read_argument(argument) {
                Ok(Spec::Endpoints(endpoints)) => {
                    Expansion::new(endpoints, &self.options).map_or(0, |expansion| expansion.left())
                }
                Ok(Spec::Path(_) | Spec::List(_) | Spec::StandardInput) => return None,
                Err(_) => 0,
            };
            Some(sum.saturating_add(more))
        })
    }

    /// Parses an argument. A word that exists as a path means that path. To scan a host with the same name as a file, write `host:443`.
    fn read_argument(&self, argument: &OsString) -> Result<Spec, TargetProblem> {
        let list = argument.as_encoded_bytes().first().is_some_and(|first| matches!(first, b'@' | b'-'));
        if !self.network_only && !list && Path::new(argument).symlink_metadata().is_ok() {
            return Ok(Spec::Path(argument.into()));
        }
        spec(argument.to_str().ok_or(TargetProblem::NotUtf8)?)
    }

    fn begin_argument(&mut self, argument: &OsString) -> Result<Option<Target>, TargetProblem> {
        match self.read_argument(argument)? {
            Spec::Endpoints(endpoints) => {
                self.current = Some(Expansion::new(endpoints, &self.options)?);
            }
            Spec::Path(path) => return Ok(Some(Target::file(&path))),
            Spec::List(path) => self.list = Some(List::open(path)?),
            Spec::StandardInput => {
                let input = self.standard_input.take().ok_or(TargetProblem::StandardInputTwice)?;
                self.list = Some(List::new(None, input));
            }
        }
        Ok(None)
    }

    fn begin_line(&mut self, text: &str) -> Result<Option<Target>, TargetProblem> {
        match spec(text)? {
            Spec::Endpoints(endpoints) => {
                self.current = Some(Expansion::new(endpoints, &self.options)?);
                Ok(None)
            }
            Spec::Path(path) => Ok(Some(Target::file(&path))),
            Spec::List(_) | Spec::StandardInput => Err(TargetProblem::NestedList),
        }
    }

    /// Returns the next target of the current list; `None` at the end of the list.
    fn next_list_item(&mut self) -> Option<Result<Option<Target>, TargetError>> {
        let list = self.list.as_mut()?;
        let Some(line) = list.next_target() else {
            self.list = None;
            return Some(Ok(None));
        };
        let origin = list.origin();
        Some(match line {
            Ok(text) => self.begin_line(&text).map_err(|problem| TargetError::new(origin, &text, problem)),
            Err(problem) => Err(TargetError::new(origin, "", problem)),
        })
    }

    fn next_argument(&mut self) -> Option<Result<Option<Target>, TargetError>> {
        let argument = self.arguments.next()?;
        Some(self.begin_argument(&argument).map_err(|problem| {
            TargetError::new(TargetOrigin::Argument, &argument.to_string_lossy(), problem)
        }))
    }
}

impl Iterator for Targets {
    type Item = Result<Target, TargetError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(target) = self.current.as_mut().and_then(Iterator::next) {
                return Some(Ok(target));
            }
            self.current = None;
            let begun = match self.next_list_item() {
                Some(begun) => begun,
                None => self.next_argument()?,
            };
            if let Some(item) = begun.transpose() {
                return Some(item);
            }
        }
    }
}

/// A list with one target per line.
struct List {
    file: Option<PathBuf>,
    input: Box<dyn BufRead + Send>,
    line: u64,
    ended: bool,
}

impl List {
    fn open(path: PathBuf) -> Result<Self, TargetProblem> {
        let file = File::open(&path).map_err(|error| TargetProblem::Unreadable(error.to_string()))?;
        Ok(Self::new(Some(path), Box::new(BufReader::new(file))))
    }

    fn new(file: Option<PathBuf>, input: Box<dyn BufRead + Send>) -> Self {
        Self { file, input, line: 0, ended: false }
    }

    fn origin(&self) -> TargetOrigin {
        match &self.file {
            Some(file) => TargetOrigin::Line { file: file.clone(), line: self.line },
            None => TargetOrigin::StandardInput { line: self.line },
        }
    }

    /// Returns the next line that is neither blank nor a comment.
    fn next_target(&mut self) -> Option<Result<String, TargetProblem>> {
        while !self.ended {
            let line = match self.next_line() {
                Ok(line) => line?,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(TargetProblem::Unreadable(error.to_string())));
                }
            };
            match line {
                Line::TooLong => return Some(Err(TargetProblem::LineTooLong { max: LINE_MAX })),
                Line::Whole(bytes) => {
                    let Ok(text) = std::str::from_utf8(&bytes) else {
                        return Some(Err(TargetProblem::NotUtf8));
                    };
                    let text = without_comment(text);
                    if !text.is_empty() {
                        return Some(Ok(text.to_owned()));
                    }
                }
            }
        }
        None
    }

    /// Reads to the end of the line. Keeps at most [`LINE_MAX`] bytes.
    fn next_line(&mut self) -> io::Result<Option<Line>> {
        let (mut bytes, mut too_long) = (Vec::new(), false);
        let mut read_any = false;
        loop {
            let chunk = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                chunk => chunk?,
            };
            if chunk.is_empty() {
                self.ended = true;
                if !read_any {
                    return Ok(None);
                }
                break;
            }
            read_any = true;
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            too_long |= bytes.len() + part.len() > LINE_MAX;
            if !too_long {
                bytes.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.line += 1;
        Ok(Some(if too_long { Line::TooLong } else { Line::Whole(bytes) }))
    }
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// Removes the comment of a line. A comment begins with `#` at the start of the line or after a space, because a URL may contain
/// `#`.
fn without_comment(line: &str) -> &str {
    let line = line.trim_start_matches('\u{feff}').trim();
    if line.starts_with('#') {
        return "";
    }
    line.find([' ', '\t'])
        .filter(|&space| line[space..].trim_start().starts_with('#'))
        .map_or(line, |space| &line[..space])
}

#[cfg(test)]
mod tests;
