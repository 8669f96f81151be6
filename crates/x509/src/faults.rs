//! Faults of a certificate: a bounded list of the parts that cannot be read.

/// Maximum faults stored for a certificate. More add no information, and a hostile certificate could have thousands.
const FAULTS_MAX: usize = 16;

/// The parts of a certificate that cannot be read, at most [`FAULTS_MAX`].
#[derive(Default)]
pub(crate) struct Faults(Vec<String>);

impl Faults {
    pub(crate) fn first(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }

    pub(crate) fn into_vec(self) -> Vec<String> {
        self.0
    }

    pub(crate) fn add(&mut self, fault: impl Into<String>) {
        if self.0.len() < FAULTS_MAX {
            self.0.push(fault.into());
        }
    }
}
