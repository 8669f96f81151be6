//! Restrictions on issuers from the host's configuration, which no API request can change.

use outbound::guard::Guard;

use crate::programs::Programs;
use crate::readable_files::ReadableFiles;

/// Programs, files and addresses that the host's configuration allows issuers to use. The default allows no program, no file and no
/// link-local address.
#[derive(Clone, Debug, Default)]
pub struct HostPolicy {
    /// The programs that may be run.
    pub programs: Programs,
    /// The files that may be read.
    pub files: ReadableFiles,
    /// The addresses that may be connected to.
    pub guard: Guard,
}
