//! Records on disk: the open segment, closed segments, and their heads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use x509::merkle::{self, Hash};

use super::head::{self, SegmentHead};

const OPEN: &str = "open.jsonl";
const HEADS: &str = "heads.jsonl";
/// Maximum closed segments whose records are retained. The heads of older segments stay.
pub(super) const SEGMENTS_MAX: u64 = 10_000;

/// Reason why records cannot be opened or verified.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// Access to the folder or a file in it failed.
    #[error("{path}: {source}")]
    File {
        /// Path of the folder or file.
        path: PathBuf,
        /// Operating system error, for example for a full disk.
        #[source]
        source: io::Error,
    },
    /// A head is malformed, or does not follow the previous one.
    #[error("{path}: head {line} does not follow the previous head: heads were changed, removed or added")]
    Chain {
        /// Path of the file that contains the heads.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
    /// The records do not match their head.
    #[error("{path}: the records do not match head {segment}: records were changed, removed or added")]
    Records {
        /// Path of the segment's file.
        path: PathBuf,
        /// Number of the segment whose records do not match.
        segment: u64,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> RecordsError + '_ {
    |source| RecordsError::File { path: path.to_owned(), source }
}

/// The folder of records, open for writing.
pub(super) struct Folder {
    path: PathBuf,
    open: File,
    /// Length in bytes of the complete records in `open`.
    length: u64,
    /// Leaf hashes of the open segment's records.
    leaves: Vec<Hash>,
    /// The number of the open segment.
    pub(super) number: u64,
    previous: String,
}

impl Folder {
    /// Opens the folder, or creates it. Returns the newest head too.
    pub(super) fn open(path: &Path) -> Result<(Self, Option<SegmentHead>), RecordsError> {
        fs::create_dir_all(path).map_err(at(path))?;
        let heads_path = path.join(HEADS);
        // A crash may have truncated the last line of either file. Incomplete lines are removed.
        read_complete_lines(&heads_path)?;
        let last = heads(path)?.pop();
        if let Some(last) = &last {
            finish(path, last.segment)?;
        }
        let text = read_complete_lines(&path.join(OPEN))?;
        let folder = Self {
            path: path.to_owned(),
            open: open_append(&path.join(OPEN))?,
            length: text.len() as u64,
            leaves: leaves(&text),
            number: last.as_ref().map_or(1, |head| head.segment + 1),
            previous: last.as_ref().map_or_else(head::none, SegmentHead::hash),
        };
        Ok((folder, last))
    }

    /// Returns the number of records in the open segment.
    pub(super) fn records(&self) -> usize {
        self.leaves.len()
    }

    /// Appends lines to the open segment and syncs them to disk. After an error, none of the lines is stored.
    pub(super) fn append(&mut self, lines: &[String]) -> Result<(), RecordsError> {
        let mut text = lines.join("\n").into_bytes();
        text.push(b'\n');
        let written = self.open.write_all(&text).and_then(|()| self.open.sync_data());
        if let Err(error) = written {
            // Otherwise the next start would read the partial lines as records.
            let _ = self.open.set_len(self.length);
            return Err(at(&self.path.join(OPEN))(error));
        }
        self.length += text.len() as u64;
        self.leaves.extend(lines.iter().map(|line| merkle::leaf_hash(line.as_bytes())));
        Ok(())
    }

    /// Writes the head of the open segment, then closes the segment. After a crash between these steps, the next start closes the
    /// segment.
    pub(super) fn close(&mut self, now_us: u64) -> Result<SegmentHead, RecordsError> {
        let head = SegmentHead::new(self.number, &self.leaves, now_us, &self.previous);
        let heads = self.path.join(HEADS);
        let line = format!("{}\n", head.line());
        let mut file = open_append(&heads)?;
        let length = file.metadata().map_err(at(&heads))?.len();
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = written {
            let _ = file.set_len(length);
            return Err(at(&heads)(error));
        }
        (self.length, self.number, self.previous) = (0, head.segment + 1, head.hash());
        self.leaves.clear();
        finish(&self.path, head.segment)?;
        self.open = open_append(&self.path.join(OPEN))?;
        if let Some(old) = head.segment.checked_sub(SEGMENTS_MAX) {
            let _ = fs::remove_file(segment(&self.path, old));
        }
        Ok(head)
    }
}

/// Renames the open segment to its closed name, unless a file of that name exists. The head must already be written.
fn finish(folder: &Path, number: u64) -> Result<(), RecordsError> {
    let (open, closed) = (folder.join(OPEN), segment(folder, number));
    if closed.exists() {
        return Ok(());
    }
    fs::rename(&open, &closed).and_then(|()| File::open(folder)?.sync_all()).map_err(at(&closed))
}

/// Returns the complete lines of a file, and truncates the rest. Empty if the file does not exist.
fn read_complete_lines(path: &Path) -> Result<Vec<u8>, RecordsError> {
    let mut text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(path)(error)),
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        open_append(path)?.set_len(whole as u64).map_err(at(path))?;
        text.truncate(whole);
    }
    Ok(text)
}

/// Opens a file for appending; only its owner may read it.
fn open_append(path: &Path) -> Result<File, RecordsError> {
    owner_only(OpenOptions::new().create(true).append(true)).open(path).map_err(at(path))
}

/// Restricts new files to their owner.
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

fn segment(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("segment-{number:010}.jsonl"))
}

fn leaves(text: &[u8]) -> Vec<Hash> {
    let lines = text.strip_suffix(b"\n").unwrap_or(text);
    let is_empty = lines.is_empty();
    lines.split(|byte| *byte == b'\n').filter(|_| !is_empty).map(merkle::leaf_hash).collect()
}

/// Reads the heads, and checks that each follows the previous one.
fn heads(folder: &Path) -> Result<Vec<SegmentHead>, RecordsError> {
    let path = folder.join(HEADS);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(at(&path)(error)),
    };
    let (mut heads, mut previous) = (Vec::new(), head::none());
    for (line, text) in text.lines().enumerate() {
        let broken = || RecordsError::Chain { path: path.clone(), line: line + 1 };
        let head: SegmentHead = serde_json::from_str(text).map_err(|_| broken())?;
        if head.segment != line as u64 + 1 || head.previous != previous || head.line() != text {
            return Err(broken());
        }
        previous = head.hash();
        heads.push(head);
    }
    Ok(heads)
}

/// Result of verifying a folder of records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Verified {
    /// Number of segments whose records match their heads.
    pub segments: u64,
    /// Number of records in the verified segments.
    pub records: u64,
    /// Number of older segments with a retained head and deleted records.
    pub pruned: u64,
}

/// Verifies the records against their heads, and the chain of heads. The caller must compare the heads with those that were logged:
/// anyone who can write the folder can forge a consistent chain.
///
/// # Errors
/// [`RecordsError`]: the first mismatch.
pub fn verify(folder: &Path) -> Result<(Verified, Vec<SegmentHead>), RecordsError> {
    let heads = heads(folder)?;
    let oldest_retained = (heads.len() as u64).saturating_sub(SEGMENTS_MAX) + 1;
    let mut found = Verified { segments: 0, records: 0, pruned: 0 };
    for head in &heads {
        let path = segment(folder, head.segment);
        let broken = || RecordsError::Records { path: path.clone(), segment: head.segment };
        match fs::read(&path) {
            Ok(text) => {
                let leaves = leaves(&text);
                if SegmentHead::new(head.segment, &leaves, head.closed_us, &head.previous) != *head {
                    return Err(broken());
                }
                found.segments += 1;
                found.records += head.records;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && head.segment < oldest_retained => {
                found.pruned += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(broken()),
            Err(error) => return Err(at(&path)(error)),
        }
    }
    Ok((found, heads))
}
