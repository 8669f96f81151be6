//! Enums whose values have names and, in the database, integer codes.
//!
//! [`named!`](crate::named!) declares an enum of names, [`coded!`](crate::coded!) one of names and codes. Each declaration
//! generates `ALL`, `name`, `Display`, `FromStr`, `Serialize` and `Deserialize` by name; with codes also `code` and `from_code`.
//! Two values with the same code or name do not compile.
//!
//! ```
//! coded::coded! {
//!     /// Progress of a scan.
//!     pub enum ScanState: "scan state" {
//!         /// The scan runs.
//!         Running = 0 => "running",
//!         /// The scan ended.
//!         Finished = 1 => "finished",
//!     }
//! }
//!
//! assert_eq!(ScanState::Finished.code(), 1);
//! assert_eq!(ScanState::from_code(7), None);
//! assert_eq!("running".parse(), Ok(ScanState::Running));
//! ```
//!
//! ```compile_fail
//! coded::coded! {
//!     /// Two values with one code.
//!     pub enum Twice: "value" {
//!         /// One.
//!         One = 1 => "one",
//!         /// The other.
//!         Other = 1 => "other",
//!     }
//! }
//! ```
//!
//! ```compile_fail
//! coded::named! {
//!     /// Two values with one name.
//!     pub enum Twice: "value" {
//!         /// One.
//!         One => "one",
//!         /// The other.
//!         Other => "one",
//!     }
//! }
//! ```

mod macros;
mod percent;
mod traits;
mod unknown;
mod wire;

pub use percent::percent_decoded;
pub use traits::{Coded, Named, Spelling};
pub use unknown::UnknownName;

/// Items used by the code that the macros generate.
#[doc(hidden)]
pub mod private {
    pub use serde;

    pub use crate::traits::{distinct, find};
    pub use crate::wire::deserialize;
}
