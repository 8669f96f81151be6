//! RSA-2048 private operations (RFC 8017 section 5.2.1), eight at a time: one signature in each 64-bit lane of AVX-512's registers,
//! by its instructions for 52-bit products (IFMA). Eight together cost less than three made one by one; a batch that is not
//! full costs as much as a full one.
//!
//! - [`Kernel`]: exists where the processor has the instructions, and makes the operations.
//! - [`Key`]: the numbers of a private key in the form the kernel reads. Whoever holds keys owns it; it is wiped when dropped.
//!
//! Time and memory addresses depend on no number of a key and on no input: every exponent is read in the same windows, tables are
//! read whole, nothing is branched on. Each result is raised to the public exponent again and compared before it leaves, as a
//! faulty one would give the key away (Boneh, DeMillo and Lipton 1997). What was computed on the way is wiped, and the stack below
//! the call with it, as far as a compiler lets one know where it puts things.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod key;
mod number;

pub use key::{Key, Parts};

/// Operations in a batch.
pub const LANES: usize = 8;

/// Octets of stack that are wiped after what handles secrets: several times what it takes, which the compiler decides.
const STACK: usize = 128 * 1024;

/// Octets of a modulus, and of what goes in and out.
pub const OCTETS: usize = 256;

/// One private operation.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// By which key.
    pub key: &'a Key,
    /// On what: big-endian, below the modulus.
    pub input: &'a [u8; OCTETS],
}

/// The instructions are there.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(());

impl Kernel {
    /// Asks the processor, and the system whether it keeps the registers.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if avx512::is_there() {
            return Some(Self(()));
        }
        None
    }

    /// `input` to the private exponent, modulo the modulus, of each job; in their order, [`LANES`] at a time. `None` where the
    /// result does not lead back to the input: a fault of the machine, a key whose numbers do not belong together, or an
    /// input that is not below the modulus.
    #[must_use]
    pub fn private_operations(self, jobs: &[Job<'_>]) -> Vec<Option<[u8; OCTETS]>> {
        let mut results = Vec::with_capacity(jobs.len());
        for eight in jobs.chunks(LANES) {
            #[cfg(target_arch = "x86_64")]
            {
                // Lanes without a job do the first one's.
                let lanes = std::array::from_fn(|lane| *eight.get(lane).unwrap_or(&eight[0]));
                results.extend(avx512::private_operations(self, &lanes).into_iter().take(eight.len()));
            }
            #[cfg(not(target_arch = "x86_64"))]
            results.extend(eight.iter().map(|_| None));
        }
        results
    }
}
