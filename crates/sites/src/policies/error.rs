//! Why something about policies was not done.

use keyless::places::FormulaError;
use keys::sealed::SealedError;
use store::StoreError;

/// Generations of a policy at most: there are two while its keys are sealed again, more when it is rotated meanwhile.
pub const GENERATIONS_MAX: usize = 8;

/// Why something about policies was not done.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Nothing by that identity or name.
    #[error("there is no {0}")]
    NotFound(&'static str),
    /// The request is invalid; the text says what to change.
    #[error("{0}")]
    Invalid(String),
    /// Not a formula.
    #[error("not a formula: {0}")]
    Formula(#[from] FormulaError),
    /// No node satisfies the policy, so no node could open its keys.
    #[error("no enrolled node satisfies `{formula}`; {there_are}")]
    Nobody {
        /// Of which formula.
        formula: String,
        /// The attributes that there are.
        there_are: String,
    },
    /// Another has that name.
    #[error("the name {0:?} is taken")]
    NameTaken(String),
    /// Another request rotated it at the same time.
    #[error("another request changed the object: read it again")]
    Changed,
    /// Sealed to another generation than the newest.
    #[error("the key is sealed to generation {given}, and the newest is {newest}: seal it again")]
    Behind {
        /// The given version.
        given: u32,
        /// The newest version.
        newest: u32,
    },
    /// Keys are sealed to it.
    #[error("{0} keys are sealed to this policy: seal them to another one, or withdraw them first")]
    HasKeys(i64),
    /// Former rotations go on.
    #[error(
        "there are {GENERATIONS_MAX} generations already: wait until their keys are sealed to the newest"
    )]
    Rotating,
    /// No more are taken.
    #[error("there are {max} {what} already, and no more are taken")]
    Full {
        /// The kind of the object.
        what: &'static str,
        /// How many.
        max: i64,
    },
    /// Not sealed as it should be.
    #[error("the sealed key is not good: {0}")]
    SealedKey(SealedError),
    /// The private key of a generation cannot be opened.
    #[error("the private half of the policy's generation {generation} cannot be opened: {why}")]
    Seed {
        /// Which.
        generation: u32,
        /// Why not.
        why: String,
    },
    /// The search for satisfying nodes reached its limit.
    #[error("the check which nodes satisfy the policy was interrupted")]
    Stopped,
    /// The cryptographic library.
    #[error("no pair can be made: {0}")]
    Pair(SealedError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}
