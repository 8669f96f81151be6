//! What the host's configuration lets issuers use. No request changes it.

use crate::programs::Programs;
use crate::readable_files::ReadableFiles;

/// What the host's configuration lets issuers use. The default allows nothing.
#[derive(Clone, Debug, Default)]
pub struct HostPolicy {
    /// The programs that may be run.
    pub programs: Programs,
    /// The files that may be read.
    pub files: ReadableFiles,
}
