//! Errors of policies.

use keyless::places::FormulaError;
use keys::sealed::SealedError;
use store::StoreError;

/// Maximum number of generations of a policy. There are two while its keys are sealed again, and more when it is rotated meanwhile.
pub const GENERATIONS_MAX: usize = 8;

/// Reason why an operation on policies failed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// No object has this id or name.
    #[error("there is no {0}")]
    NotFound(&'static str),
    /// The request is invalid; the text says what to change.
    #[error("{0}")]
    Invalid(String),
    /// The formula is malformed.
    #[error("invalid formula of the policy: {0}")]
    Formula(#[from] FormulaError),
    /// No node satisfies the policy, so no node could open its keys.
    #[error("no enrolled node satisfies `{formula}`; {available_attributes}")]
    Nobody {
        /// The formula that no node satisfies.
        formula: String,
        /// Attributes of the enrolled nodes.
        available_attributes: String,
    },
    /// The name is already taken.
    #[error("the name {0:?} is taken")]
    NameTaken(String),
    /// Another request rotated the policy at the same time.
    #[error("another request changed the object: read it again")]
    Changed,
    /// The key is sealed to a generation other than the newest.
    #[error("the key is sealed to generation {given}, but the newest is {newest}: seal the key again")]
    Behind {
        /// Generation that the key is sealed to.
        given: u32,
        /// Newest generation of the policy.
        newest: u32,
    },
    /// Keys are still sealed to the policy. Contains their number.
    #[error("{0} keys are sealed to this policy: seal the keys to another policy, or withdraw them first")]
    HasKeys(i64),
    /// Earlier rotations are still in progress.
    #[error(
        "there are {GENERATIONS_MAX} generations already: wait until all keys are resealed to the newest generation"
    )]
    Rotating,
    /// The maximum number of objects is reached.
    #[error("the limit of {max} {what} is reached")]
    Full {
        /// Plural name of the objects, such as `policies`.
        what: &'static str,
        /// Maximum number.
        max: i64,
    },
    /// The sealed key is malformed.
    #[error("invalid sealed key: {0}")]
    SealedKey(SealedError),
    /// The private key of a generation cannot be decrypted.
    #[error("the private key of the policy's generation {generation} cannot be opened: {why}")]
    Seed {
        /// Number of the policy's generation, from 1.
        generation: u32,
        /// Reason of the failure.
        why: String,
    },
    /// The task that evaluates the formulas ended early, for example because the process shuts down.
    #[error("the check of which nodes satisfy the policy was interrupted")]
    Stopped,
    /// The cryptographic library failed.
    #[error("the key pair cannot be generated: {0}")]
    Pair(SealedError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
